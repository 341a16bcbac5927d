package webhook_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/internal/revision"
)

// The webhook was started without the definition of RolloutPolicies.
func (s *environment) policiesAppear(t *testing.T) {
	set := sidecarSet("staged", "staged", "side")
	require.NoError(t, s.admin.Create(s.ctx, set))
	good, err := revision.New(set, cluster.SystemNamespace, 1)
	require.NoError(t, err)
	require.NoError(t, s.admin.Create(s.ctx, good))
	set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Revision: good.Name, Hash: set.Annotations[v1alpha1.HashAnnotation], ResourceVersion: set.ResourceVersion}}
	require.NoError(t, s.admin.Status().Update(s.ctx, set))
	before := set.DeepCopy()
	set.Spec.Containers[0].Image = "side:v2"
	require.NoError(t, s.admin.Patch(s.ctx, set, client.MergeFrom(before)))
	s.getsImage(t, "side:v2")

	out, err := s.kubectl("", "apply", "-f", "../config/crd/bases/outrigger.io_rolloutpolicies.yaml")
	require.NoError(t, err, out)
	out, err = s.kubectl("", "wait", "--for=condition=Established", "crd/rolloutpolicies.outrigger.io")
	require.NoError(t, err, out)
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "staged"}}
	policy.Spec.Steps = []outriggerv1.RolloutStep{{UpTo: intstr.FromInt32(1)}}
	await(t, s.ctx, func() (bool, error) {
		// The API server may not serve the new definition yet.
		return s.admin.Create(s.ctx, policy) == nil, nil
	})
	s.getsImage(t, "side:v1")
	require.NoError(t, s.admin.Delete(s.ctx, policy))
	s.getsImage(t, "side:v2")
}

// getsImage waits until a sidecar with the image is injected into a new pod.
func (s *environment) getsImage(t *testing.T, image string) {
	t.Helper()
	await(t, s.ctx, func() (bool, error) {
		made := pod(metav1.NamespaceDefault, "staged")
		if err := s.admin.Create(s.ctx, made, client.DryRunAll); err != nil {
			return false, err
		}
		return assert.Len(t, made.Spec.Containers, 2) && made.Spec.Containers[0].Image == image, nil
	})
}
