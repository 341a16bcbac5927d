package sidecarsets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/config/rbac"
	"github.com/outrigger/outrigger/kube"
)

var podResource = schema.GroupResource{Resource: "pods"}

// ofPolicy returns the rejection by a ValidatingAdmissionPolicy.
func ofPolicy() error {
	err := apierrors.NewForbidden(podResource, dryRunPod, errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"))
	err.ErrStatus.Reason, err.ErrStatus.Code = metav1.StatusReasonInvalid, 422
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "no"}}
	return err
}

func TestSpec5_OnlyPodValidationDecides(t *testing.T) {
	forbidden := func(cause string) error {
		return apierrors.NewForbidden(podResource, dryRunPod, errors.New(cause))
	}
	wrong := field.ErrorList{field.Invalid(field.NewPath("spec", "containers").Index(0).Child("image"), "x", "bad")}
	invalidPod := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, dryRunPod, wrong)
	ofWebhook := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, dryRunPod, wrong)
	ofWebhook.ErrStatus.Message = `admission webhook "x" denied the request: no`
	for name, test := range map[string]struct {
		answer error
		causes []metav1.StatusCause
		remedy string
	}{
		"admitted, no quota yet":     {answer: nil},
		"over our quota":             {answer: forbidden("exceeded quota: no-pods, requested: pods=1, used: pods=0, limited: pods=0")},
		"over another quota":         {answer: forbidden("exceeded quota: no-pods-2, requested: pods=1"), remedy: "exempt namespace outrigger-validation"},
		"quota without figures":      {answer: forbidden("status unknown for quota: no-pods, resources: pods"), remedy: "exempt namespace"},
		"pod security":               {answer: forbidden(`violates PodSecurity "restricted:latest": exceeded quota: no-pods,`), remedy: "exempt namespace"},
		"policy":                     {answer: ofPolicy(), remedy: "exempt namespace"},
		"webhook of another program": {answer: ofWebhook, remedy: "exempt namespace"},
		"bad request of a webhook":   {answer: apierrors.NewBadRequest(`admission webhook "x" denied the request: no`), remedy: "exempt namespace"},
		"no right":                   {answer: apierrors.NewForbidden(podResource, "", errors.New(`User "w" cannot create resource "pods"`)), remedy: "apply config/rbac"},
		"no namespace":               {answer: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, dryRunNamespace), remedy: "apply config/rbac"},
		"invalid":                    {answer: invalidPod, causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.containers[0].image", Message: `Invalid value: "x": bad`}}},
		"unreadable": {answer: apierrors.NewBadRequest("no such thing"), causes: []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldValueInvalid, Field: "spec", Message: "the API server cannot decode a pod with these containers and volumes: no such thing",
		}}},
		"overloaded":  {answer: apierrors.NewTooManyRequests("slow down", 1), remedy: "try again"},
		"broken":      {answer: apierrors.NewInternalError(errors.New("x")), remedy: "try again"},
		"unreachable": {answer: context.DeadlineExceeded, remedy: "try again"},
	} {
		causes, err := dryRunCauses(test.answer)
		assert.Equal(t, test.causes, causes, name)
		if test.remedy == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, test.remedy, name)
			assert.ErrorIs(t, err, test.answer, name)
		}
	}
}

// counted returns a podDryRun that counts the creations of pods in tries. The first creations return the
// errors in answers. All later creations succeed. Each applied object adds 100 to tries.
func counted(t *testing.T, tries *int, answers ...error) podDryRun {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	return podDryRun{client: fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.CreateOption) error {
			var applied client.CreateOptions
			applied.ApplyOptions(options)
			assert.Equal(t, []string{metav1.DryRunAll}, applied.DryRun)
			*tries++
			if created := *tries % 100; created <= len(answers) {
				return answers[created-1]
			}
			return nil
		},
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			*tries += 100
			return nil
		},
	}).Build()}
}

func TestSpec5_ADryRunNeedsAChange(t *testing.T) {
	const before = `{"spec":{"containers":[{"name":"a","image":"b"}],"volumes":[{"name":"v"}]}}`
	for after, want := range map[string]int{
		before: 0,
		`{"spec":{"containers":[{"name":"a","image":"b"}],"volumes":[{"name":"v"}],"updateStrategy":{"paused":true}}}`:               0,
		`{"spec":{"containers":[{"name":"a","image":"b","podInjectPolicy":"AfterAppContainer"}],"volumes":[{"name":"v"}]}}`:          0,
		`{"spec":{"containers":[{"name":"a","image":"c"}],"volumes":[{"name":"v"}]}}`:                                                1,
		`{"spec":{"containers":[{"name":"a","image":"b"}],"volumes":[{"name":"w"}]}}`:                                                1,
		`{"spec":{"containers":[{"name":"a","image":"b"}],"volumes":[{"name":"v"}],"initContainers":[{"name":"i"}]}}`:                1,
		`{"spec":{"containers":[{"name":"a","image":"b"}],"volumes":[{"name":"v"}],"imagePullSecrets":[{"name":"s"}]}}`:              1,
		`{"spec":{"containers":[{"name":"a","image":"b","upgradeStrategy":{"upgradeType":"HotUpgrade"}}],"volumes":[{"name":"v"}]}}`: 1,
		`{"spec":{"containers":[],"volumes":[{"name":"w"}]}}`:                                                                        0,
	} {
		tries := 0
		_, err := counted(t, &tries).causes(t.Context(), []byte(after), []byte(before), nil)
		require.NoError(t, err)
		assert.Equal(t, want, tries, after)
	}
	tries := 0
	_, err := counted(t, &tries).causes(t.Context(), []byte(before), nil, nil)
	require.NoError(t, err)
	assert.Equal(t, 1, tries, "a new set always needs a dry run")
}

func TestAMissingNamespaceIsAppliedAndTheDryRunRetried(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, dryRunNamespace)
	tries := 0
	_, err := counted(t, &tries, gone).causes(t.Context(), []byte(`{"spec":{"containers":[{"name":"a"}]}}`), nil, nil)
	require.NoError(t, err)
	assert.Equal(t, 202, tries, "a namespace, a quota and two pods")
	tries = 0
	nested := counted(t, &tries, gone)
	nested.nested = true
	causes, err := nested.causes(t.Context(), []byte(`{"spec":{"containers":[{"name":"a"}]}}`), nil, nil)
	require.NoError(t, err)
	assert.Empty(t, causes)
	assert.Equal(t, 1, tries, "a dry run creates no namespace")
	tries = 0
	_, err = counted(t, &tries, gone, gone).causes(t.Context(), []byte(`{"spec":{"containers":[{"name":"a"}]}}`), nil, nil)
	require.ErrorIs(t, err, gone)
	assert.Equal(t, 202, tries)
}

func TestTheShippedNamespaceIsUsed(t *testing.T) {
	var namespace corev1.Namespace
	var quota corev1.ResourceQuota
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rbac.Validation), len(rbac.Validation))
	require.NoError(t, documents.Decode(&namespace))
	require.NoError(t, documents.Decode(&quota))
	require.ErrorIs(t, documents.Decode(&json.RawMessage{}), io.EOF)
	assert.Equal(t, dryRunNamespace, namespace.Name)
	assert.Equal(t, v1alpha1.InjectionDisabled, namespace.Labels[v1alpha1.InjectionLabel])
	assert.Equal(t, client.ObjectKey{Namespace: dryRunNamespace, Name: dryRunQuota}, client.ObjectKeyFromObject(&quota))
	assert.True(t, quota.Spec.Hard.Pods().IsZero())
}
