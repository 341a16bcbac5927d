package view

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestEachAnswerOfWhyHasACommand(t *testing.T) {
	for want, change := range map[string]func(*Input){
		"kubectl rollout restart deployment/web -n default": func(*Input) {},
		`-p '{"spec":{"updateStrategy":{"paused":false}}}'`: func(in *Input) { in.Set.Spec.UpdateStrategy.Paused = true },
		"kubectl sidecarset resume logs": func(in *Input) {
			in.Set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann"}}
		},
		`-p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'`: func(in *Input) {
			in.Set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
		},
		`-p '{"spec":{"updateStrategy":{"maxUnavailable":1}}}'`: func(in *Input) {
			in.Set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(0))
		},
		`-p '{"spec":{"updateStrategy":{"partition":0}}}'`: func(in *Input) {
			in.Pods = []*corev1.Pod{in.Pods[0], in.Pods[3]}
			in.Set.Spec.UpdateStrategy.Partition = new(intstr.FromInt32(1))
		},
		`-p '{"spec":{"updateStrategy":{"selector":null}}}'`: func(in *Input) {
			in.Pods = []*corev1.Pod{in.Pods[0], in.Pods[3]}
			in.Set.Spec.UpdateStrategy.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "true"}}
		},
		"to go back: kubectl sidecarset undo logs":  func(*Input) {},
		"kubectl describe pod web-5d6-b -n default": func(*Input) {},
		"kubectl get pods -A -l 'app=web'":          func(in *Input) { in.Pods = nil },
		"kubectl sidecarset status logs --watch":    func(in *Input) { in.Pods = in.Pods[3:4]; in.Set.Status.Conditions = nil },
		"kubectl sidecarset history logs":           func(in *Input) { in.Pods = in.Pods[:1] },
		"WorkerUnavailable: m (kubectl sidecarset check)": func(in *Input) {
			in.Set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: v1alpha1.ReasonWorkerUnavailable, Message: "m"}}
		},
	} {
		in := input(t)
		change(in)
		why, err := NewRolloutWhy(in)
		require.NoError(t, err)
		assert.Contains(t, why.Text(Style{Now: noon}), want)
	}
}
