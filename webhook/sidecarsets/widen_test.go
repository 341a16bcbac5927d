package sidecarsets

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/webhook/fallback"
)

// widening returns a validator that records the pods for which API servers call the webhook.
func widening(t *testing.T, widened *[]string, err error) *Validator {
	t.Helper()
	scheme, failed := kube.NewScheme()
	require.NoError(t, failed)
	empty := fake.NewClientBuilder().WithScheme(scheme).Build()
	return &Validator{
		Decoder: admission.NewDecoder(scheme), Cached: empty, Sets: current(empty), Client: empty, SystemNamespace: "system",
		Revisions: fallback.Revisions{Reader: current(empty), SystemNamespace: "system"},
		Widen: func(_ context.Context, added match.Condition) error {
			*widened = append(*widened, added.Expression())
			return err
		},
	}
}

func creationOf(req admission.Request) admission.Request {
	req.Operation, req.OldObject = admissionv1.Create, runtime.RawExtension{}
	return req
}

const validSet = `{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet","metadata":{"name":"s"},"spec":{"selector":{"matchLabels":{"app":"a"}},"containers":[{"name":"c","image":"i"}]}}`

func selectorOf(app string) func(map[string]any) {
	return func(set map[string]any) {
		spec(set)["selector"] = map[string]any{"matchLabels": map[string]any{"app": app}}
	}
}

func TestSpec4_16_TheConditionIsWidenedBeforeASidecarSetIsAccepted(t *testing.T) {
	unchanged := func(map[string]any) {}
	inNamespaceA := strings.Replace(validSet, `"selector"`, `"namespace":"a","selector"`, 1)
	inNamespaceB := func(set map[string]any) { spec(set)["namespace"] = "b" }
	for name, c := range map[string]struct {
		request admission.Request
		want    int
	}{
		"new":                  {creationOf(updateOf(t, validSet, unchanged)), 1},
		"another selector":     {updateOf(t, validSet, selectorOf("b")), 1},
		"another namespace":    {updateOf(t, inNamespaceA, inNamespaceB), 1},
		"one namespace of all": {updateOf(t, validSet, inNamespaceB), 0},
		"unchanged":            {updateOf(t, validSet, unchanged), 0},
		"another image": {updateOf(t, validSet, func(set map[string]any) {
			spec(set)["containers"].([]any)[0].(map[string]any)["image"] = "j"
		}), 0},
		"invalid": {creationOf(updateOf(t, validSet, func(set map[string]any) { spec(set)["containers"] = []any{} })), 0},
	} {
		var widened []string
		response := widening(t, &widened, nil).Handle(t.Context(), c.request)
		assert.Equal(t, name != "invalid", response.Allowed, "%s: %v", name, response.Result)
		assert.Len(t, widened, c.want, name)

		c.request.DryRun, widened = new(true), nil
		widening(t, &widened, nil).Handle(t.Context(), c.request)
		assert.Empty(t, widened, "%s: a dry run has no side effects", name)
	}
}

func TestSpec4_16_ASidecarSetIsRejectedIfTheConditionCannotBeWritten(t *testing.T) {
	var widened []string
	v := widening(t, &widened, errors.New("forbidden; apply config/rbac"))
	response := v.Handle(t.Context(), creationOf(updateOf(t, validSet, func(map[string]any) {})))
	require.False(t, response.Allowed)
	assert.EqualValues(t, 500, response.Result.Code)
	assert.Equal(t, "SidecarSet s cannot be accepted: forbidden; apply config/rbac", response.Result.Message)
	response = v.Handle(t.Context(), updateOf(t, validSet, func(set map[string]any) { spec(set)["updateStrategy"] = map[string]any{"paused": true} }))
	assert.True(t, response.Allowed, "a pause needs no write: %v", response.Result)
}
