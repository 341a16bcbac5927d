package webhook

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/kube"
)

func TestSpec5_TheWhitelistIsAskedUnlessTheGateIsOpen(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	set := fixture.SidecarSet("s", fixture.Sidecar("a"))
	set.Spec.PatchPodMetadata = []v1alpha1.SidecarSetPatchPodMetadata{{Annotations: map[string]string{"oom-score": "1"}}}
	for _, test := range []struct {
		whitelist string
		open      bool
		want      int
	}{
		{"", false, 1},
		{"", true, 0},
		{`{"rules":[{"allowedAnnotationKeyExprs":["^oom-score$"]}]}`, false, 0},
		{`{"rules":[{"allowedAnnotationKeyExprs":["^else$"]}]}`, false, 1},
		{`{"rules":[{"allowedAnnotationKeyExprs":["^else$"]}]}`, true, 0},
		{`broken`, true, 0},
	} {
		configuration := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: v1alpha1.ConfigurationName}}
		configuration.Data = map[string]string{v1alpha1.MetadataWhitelistKey: test.whitelist}
		v := validator{
			cached: fake.NewClientBuilder().WithScheme(scheme).WithObjects(configuration).Build(), systemNamespace: "system",
			gates: FeatureGates{PatchPodMetadataDefaultsAllowed: test.open},
		}
		errs, err := v.metadata(t.Context(), set)
		require.NoError(t, err)
		assert.Len(t, errs, test.want, "%+v", test)
	}
}

func TestSpec5_AWhitelistThatCannotBeReadRefuses(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	set := fixture.SidecarSet("s", fixture.Sidecar("a"))
	set.Spec.PatchPodMetadata = []v1alpha1.SidecarSetPatchPodMetadata{{Annotations: map[string]string{"oom-score": "1"}}}
	down := errors.New("down")
	v := validator{systemNamespace: "system", cached: fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
	}).Build()}
	_, err = v.metadata(t.Context(), set)
	require.ErrorIs(t, err, down)
	require.ErrorContains(t, err, "system/"+v1alpha1.ConfigurationName)
}
