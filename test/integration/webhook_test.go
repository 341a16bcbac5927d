package integration

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// dryRunPod creates a pod with the label app in a dry run, and returns the pod after admission.
func dryRunPod(ctx context.Context, namespace, app string) (*corev1.Pod, error) {
	return dryRunPodIn(ctx, stack.kube, namespace, app)
}

// dryRunPodIn is like dryRunPod, for any cluster.
func dryRunPodIn(ctx context.Context, kube client.Client, namespace, app string) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
	err := kube.Create(ctx, pod, client.DryRunAll)
	return pod, err
}

// tryPod creates a pod in a dry run and returns the names of the containers.
func tryPod(ctx context.Context, namespace, app string) ([]string, error) {
	pod, err := dryRunPod(ctx, namespace, app)
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	return names, err
}

func TestWithTheWebhookDownItsFailurePolicyHolds(t *testing.T) {
	s := newScenario(t, 0, nil)
	require.NoError(t, stack.Stop("webhook"))
	up := sync.OnceFunc(func() { require.NoError(t, stack.StartAgain(context.WithoutCancel(s.ctx), "webhook")) })
	defer up()
	_, err := tryPod(s.ctx, s.name, s.name)
	require.ErrorContains(t, err, "failed calling webhook", "a namespace that is asked about")
	_, err = tryPod(s.ctx, "kruise-system", s.name)
	require.NoError(t, err, "the system namespace")
	s.awaitSet("status to say that new pods are rejected", func(set *v1alpha1.SidecarSet) bool {
		condition := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionInjected)
		return condition != nil && condition.Reason == v1alpha1.ReasonWebhookUnavailable && strings.Contains(condition.Message, "new pods are rejected")
	})
	out, err := kubectl(s.ctx, "", "label", "namespace", s.name, "outrigger.io/injection=disabled")
	require.NoError(t, err, out)
	s.poll("the opted-out namespace to admit pods", func() (bool, error) {
		_, err := tryPod(s.ctx, s.name, s.name)
		return err == nil, nil
	})
	up()
	s.awaitSet("status to say that pods are injected again", func(set *v1alpha1.SidecarSet) bool {
		return meta.IsStatusConditionTrue(set.Status.Conditions, v1alpha1.ConditionInjected)
	})
}
