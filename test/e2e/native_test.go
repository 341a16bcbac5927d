//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// native returns a function that makes the sidecar a native sidecar.
func native(update v1alpha1.SidecarSetUpdateStrategyType) func(*v1alpha1.SidecarSet) {
	return func(set *v1alpha1.SidecarSet) {
		set.Spec.InitContainers, set.Spec.Containers = set.Spec.Containers, nil
		set.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		set.Spec.UpdateStrategy.Type = update
	}
}

func TestSpec4_2_AJobEndsAlthoughItsNativeSidecarDoesNot(t *testing.T) {
	s := newEnvironment(t, 1, native(v1alpha1.NotUpdateSidecarSetStrategyType))
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "job"}}
	job.Spec.Template.Labels = map[string]string{appLabel: s.name}
	job.Spec.Template.Spec = podSpec()
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Template.Spec.Containers[0].Command = []string{"/container", "end", "2s"}
	require.NoError(t, stack.kube.Create(s.ctx, job))
	s.poll("the job to end", func() (bool, error) {
		err := stack.kube.Get(s.ctx, client.ObjectKeyFromObject(job), job)
		return job.Status.Succeeded == 1 && job.Status.CompletionTime != nil, err
	})
	pods := s.pods()
	require.Len(t, pods, 1)
	is := containers(&pods[0])
	require.Contains(t, is, sidecar)
	assert.Zero(t, is["app"].State.Terminated.ExitCode)
	require.NotNil(t, is[sidecar].State.Terminated, "the sidecar ran beside the app, and was ended after it")
	assert.Zero(t, is[sidecar].RestartCount)
	assert.False(t, is[sidecar].State.Terminated.FinishedAt.Before(&is["app"].State.Terminated.FinishedAt))
}

func TestSpec7_6_ANativeSidecarRestartsAlone(t *testing.T) {
	onlyTheSidecarRestarts(t, newEnvironment(t, 1, native(v1alpha1.RollingUpdateSidecarSetStrategyType)))
}

// The old container ends with exit code 0, so the status of the container shows no failed start while the
// kubelet cannot pull the image.
func TestSpec7_2_AMissingImageOfANativeSidecarIsReportedAndCorrected(t *testing.T) {
	s := newEnvironment(t, 1, native(v1alpha1.RollingUpdateSidecarSetStrategyType))
	s.deploy(2, v1)
	s.upgradeTo(absent)
	s.awaitReason(v1alpha1.ConditionDegraded, v1alpha1.ReasonContainerCannotStart)
	require.Equal(t, 1, s.watched.Asked(absent))
	s.upgradeTo(v2)
	s.await(observer.Converged(2))
	s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonRolloutComplete)
	s.within(1)
}
