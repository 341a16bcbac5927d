package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

// noon is a Friday.
var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func sidecars(image string) *v1alpha1.SidecarSet {
	set := fixture.SidecarSet("logs", fixture.Sidecar("agent", func(c *v1alpha1.SidecarContainer) { c.Image = image }))
	set.Spec.UpdateStrategy.Type = v1alpha1.RollingUpdateSidecarSetStrategyType
	return set
}

// injected returns ready pods that were created with a version. Each owner has three pods.
func injected(n int, image string) []*corev1.Pod {
	former := sidecars(image)
	var pods []*corev1.Pod
	for i := range n {
		pod := fixture.Pod(corev1.Container{Name: "agent", Image: image})
		pod.Name, pod.UID = fmt.Sprintf("web-%03d", i), types.UID(fmt.Sprint("u-", i))
		pod.Annotations = map[string]string{
			v1alpha1.InjectedListAnnotation:     "logs",
			v1alpha1.HashAnnotation:             fixture.HashEntry(former, v1alpha1.HashAnnotation),
			v1alpha1.HashWithoutImageAnnotation: fixture.HashEntry(former, v1alpha1.HashWithoutImageAnnotation),
		}
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", UID: types.UID(fmt.Sprint("r-", i/3)), Controller: new(true)}}
		pod.Spec.NodeName = fmt.Sprint("node-", i%3)
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", Image: image, ImageID: "id-" + image, Ready: true}}
		pods = append(pods, pod)
	}
	return pods
}

func policyOf(steps ...outriggerv1.RolloutStep) *outriggerv1.RolloutPolicy {
	steps = slices.Clone(steps)
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "canary"}}
	policy.Spec.Steps = steps
	return policy
}

func upTo(value string, change ...func(*outriggerv1.RolloutStep)) outriggerv1.RolloutStep {
	step := outriggerv1.RolloutStep{UpTo: intstr.Parse(value)}
	for _, c := range change {
		c(&step)
	}
	return step
}

func named(name string) func(*outriggerv1.RolloutStep) {
	return func(s *outriggerv1.RolloutStep) { s.Name = name }
}

func bakes(d time.Duration) func(*outriggerv1.RolloutStep) {
	return func(s *outriggerv1.RolloutStep) { s.Bake = &metav1.Duration{Duration: d} }
}

func approved(s *outriggerv1.RolloutStep) { s.Approval = &outriggerv1.StepApproval{} }

func maxUnavailable(set *v1alpha1.SidecarSet, value string) {
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.Parse(value))
}

// input returns the input for the rollout of agent:v2 to 20 pods.
func input(policy *outriggerv1.RolloutPolicy, change ...func(*Input)) *Input {
	in := &Input{Set: sidecars("agent:v2"), Pods: injected(20, "agent:v1"), Policy: policy, Begin: noon, ColdRestart: 5 * time.Second}
	maxUnavailable(in.Set, "20%")
	for _, c := range change {
		c(in)
	}
	return in
}

func run(t *testing.T, in *Input) *Result {
	t.Helper()
	result, err := Run(t.Context(), in)
	require.NoError(t, err)
	return result
}

// TestTimelines compares the text with files in testdata. With UPDATE=1, TestTimelines writes the files.
func TestTimelines(t *testing.T) {
	threeSteps := []outriggerv1.RolloutStep{upTo("1", named("canary"), bakes(10*time.Minute), approved), upTo("50%", bakes(time.Hour)), upTo("100%")}
	office := outriggerv1.RolloutWindow{Schedule: "0 9 * * 1-5", Duration: metav1.Duration{Duration: 4 * time.Hour}, TimeZone: "Europe/Berlin"}
	for name, in := range map[string]*Input{
		"steps": input(policyOf(threeSteps...)),
		"approvals-take-time": input(policyOf(threeSteps...), func(in *Input) {
			in.ApprovalAfter, in.ColdRestart = 4*time.Hour, time.Minute
		}),
		"hypothetical": input(policyOf(threeSteps...), func(in *Input) { in.Pods = injected(20, "agent:v2") }),
		"windows": input(policyOf(threeSteps...), func(in *Input) {
			in.Policy.Spec.Windows = []outriggerv1.RolloutWindow{office}
		}),
		"window-ends-in-a-step": input(policyOf(), func(in *Input) {
			in.Policy.Spec.Windows = []outriggerv1.RolloutWindow{office}
			in.Begin, in.ColdRestart = noon.Add(-10*time.Minute), 5*time.Minute
		}),
		"domains-and-owners": input(policyOf(upTo("100%")), func(in *Input) {
			in.Policy.Spec.MaxUnavailablePerOwner, in.Policy.Spec.Domains = 1, &outriggerv1.RolloutDomains{TopologyKey: "zone", MaxUnavailableDomains: 1}
			in.Cluster.Domain = func(node string) string { return "zone-" + node }
		}),
		"partition": input(policyOf(threeSteps...), func(in *Input) {
			in.Set.Spec.UpdateStrategy.Partition = new(intstr.FromString("75%"))
		}),
		"failing": input(policyOf(threeSteps...), func(in *Input) {
			in.Fail, in.Policy.Spec.Failure = 2, &outriggerv1.RolloutFailure{MaxFailedPods: intstr.FromInt32(1)}
		}),
		"rolled-back": input(policyOf(upTo("50%")), func(in *Input) {
			in.Fail, in.Policy.Spec.Failure = 2, &outriggerv1.RolloutFailure{MaxFailedPods: intstr.FromInt32(1), Action: outriggerv1.RollbackOnFailure}
			in.Set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Revision: "logs-1", Hash: "former", ResourceVersion: "7"}}
		}),
		"without-progress": input(policyOf(threeSteps...), func(in *Input) {
			in.Fail, in.Policy.Spec.Failure = 1, &outriggerv1.RolloutFailure{MaxFailedPods: intstr.FromInt32(9), ProgressDeadline: &metav1.Duration{Duration: 30 * time.Minute}}
		}),
		"gates": input(policyOf(threeSteps...), func(in *Input) {
			prometheus := &outriggerv1.PrometheusGate{Address: "http://prometheus:9090", Query: "up", Samples: 3, Interval: &metav1.Duration{Duration: 2 * time.Minute}, Success: "value == 1.0"}
			in.Policy.Spec.Gates = []outriggerv1.RolloutGate{{Name: "errors", Prometheus: prometheus}, {Name: "review", Webhook: &outriggerv1.WebhookGate{URL: "https://review"}}}
			in.Policy.Spec.Steps[0].Gates = []string{"errors", "review"}
		}),
		"frozen": input(policyOf(threeSteps...), func(in *Input) {
			in.Freezes = []outriggerv1.RolloutFreeze{{ObjectMeta: metav1.ObjectMeta{Name: "sale"}, Spec: outriggerv1.RolloutFreezeSpec{Reason: "no changes", Until: &metav1.Time{Time: noon.Add(12 * time.Hour)}}}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			text := run(t, in).Text()
			file := filepath.Join("testdata", name+".txt")
			if os.Getenv("UPDATE") != "" {
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), text)
		})
	}
}

func TestSimulationsThatCannotGoOnEndWithTheReason(t *testing.T) {
	steps := policyOf(upTo("1"), upTo("50%"))
	for name, c := range map[string]struct {
		change func(*Input)
		end    string
	}{
		"no pods":   {func(in *Input) { in.Pods = nil }, "ends: the SidecarSet matches no pods (kubectl sidecarset why logs)"},
		"NotUpdate": {func(in *Input) { in.Set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType }, "ends: spec.updateStrategy.type is NotUpdate, so no pod is upgraded"},
		"no slot":   {func(in *Input) { maxUnavailable(in.Set, "0") }, "step 1 of 2 does not end: spec.updateStrategy.maxUnavailable allows no unavailable pod, so no ready pod is upgraded"},
		"partition": {func(in *Input) { in.Set.Spec.UpdateStrategy.Partition = new(intstr.FromInt32(15)) }, "ends: spec.updateStrategy.partition 15 keeps 15 pods at the old version"},
		"selects none": {func(in *Input) {
			in.Set.Spec.UpdateStrategy.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, "ends: spec.updateStrategy.selector selects no pod that can be upgraded in place"},
		"selects some": {func(in *Input) {
			in.Set.Spec.UpdateStrategy.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}
			in.Pods[3].Labels["zone"] = "a"
		}, "complete; not upgraded: 19 pods, because of spec.updateStrategy.selector"},
		"frozen for good": {func(in *Input) { in.Freezes = []outriggerv1.RolloutFreeze{{ObjectMeta: metav1.ObjectMeta{Name: "f"}}} }, "step 1 of 2 does not end: frozen by RolloutFreeze f"},
		"no window opens": {func(in *Input) {
			in.Policy.Spec.Windows = []outriggerv1.RolloutWindow{{Schedule: "0 0 30 2 *", Duration: metav1.Duration{Duration: time.Hour}}}
		}, "step 1 of 3 does not end: outside the windows of RolloutPolicy canary, none of which opens again"},
		"windows without a duration": {func(in *Input) {
			in.Policy.Spec.Windows = []outriggerv1.RolloutWindow{{Schedule: "0 0 1 1 *"}}
		}, "step 1 of 3 does not end: outside the windows of RolloutPolicy canary until 2037-01-01T00:00:00Z"},
		"failed pods": {func(in *Input) { in.Fail = 1 }, "step 1 of 2 does not end: 1 of 20 pods updated, 0 of them ready; 19 to go, 1 unavailable of 4 allowed; waiting for pods such as default/web-000"},
		"a slow restart": {func(in *Input) {
			in.ColdRestart = time.Hour
			in.Policy.Spec.Failure = &outriggerv1.RolloutFailure{ProgressDeadline: &metav1.Duration{Duration: time.Minute}}
		}, "pauses: no pod became updated and ready within 1m (progressDeadline); upgraded pods that are not ready: 1, such as default/web-000"},
		"more than images": {func(in *Input) { in.Pods[0].Annotations[v1alpha1.HashWithoutImageAnnotation] = `{"logs":{"hash":"x"}}` }, "complete; not upgraded: 1 pod, which cannot be upgraded in place"},
		"of a Job": {func(in *Input) {
			in.Pods[0].Annotations[v1alpha1.HashWithoutImageAnnotation] = `{"logs":{"hash":"x"}}`
			in.Pods[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "once", Controller: new(true)}}
		}, "complete; not upgraded: 1 pod, of which Jobs own 1; pods of Jobs keep their version until their end"},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(steps.DeepCopy(), c.change)
			result := run(t, in)
			assert.Equal(t, c.end, result.End)
			assert.NotEmpty(t, result.Events[len(result.Events)-1].Message)
			assert.Contains(t, c.end, result.Events[len(result.Events)-1].Message)
		})
	}
}

func TestSpec11_2_TheSimulationKeepsTheLimits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var steps []outriggerv1.RolloutStep
		for range random.IntN(4) {
			steps = append(steps, upTo(fmt.Sprintf("%d%%", random.IntN(101)), bakes(time.Duration(random.IntN(3))*time.Minute)))
		}
		in := input(policyOf(steps...), func(in *Input) {
			in.Pods = injected(1+random.IntN(40), "agent:v1")
			in.Policy.Spec.MaxUnavailablePerOwner = random.Int32N(3)
			maxUnavailable(in.Set, fmt.Sprint(1+random.IntN(6)))
			if random.IntN(2) == 0 {
				in.Policy.Spec.Domains = &outriggerv1.RolloutDomains{TopologyKey: "zone", MaxUnavailableDomains: 1 + random.Int32N(2)}
				in.Cluster.Domain = func(node string) string { return "zone-" + node }
			}
		})
		assertKeepsLimits(t, in, run(t, in))
	}
}

// assertKeepsLimits checks a timeline without the planner.
func assertKeepsLimits(t *testing.T, in *Input, result *Result) {
	t.Helper()
	require.True(t, result.Complete, result.End)
	require.Equal(t, len(in.Pods), result.Upgraded)
	require.LessOrEqual(t, result.Most.Pods, result.MaxUnavailablePods)
	if limit := in.Policy.Spec.MaxUnavailablePerOwner; limit > 0 {
		require.LessOrEqual(t, result.Most.PerOwner, int(limit))
	}
	if domains := in.Policy.Spec.Domains; domains != nil {
		require.Positive(t, result.Most.Domains)
		require.LessOrEqual(t, result.Most.Domains, int(domains.MaxUnavailableDomains))
	}
	upgraded, last := 0, time.Duration(0)
	var reachedAt time.Duration
	step, bake := 0, time.Duration(0)
	for _, event := range result.Events {
		require.GreaterOrEqual(t, event.After.Duration, last)
		last = event.After.Duration
		if event.Upgraded > 0 {
			require.GreaterOrEqual(t, event.After.Duration, reachedAt+bake, "a pod is upgraded during the bake time")
			upgraded += event.Upgraded
			if event.LastAfter != nil {
				last = event.LastAfter.Duration
			}
			if step < len(in.Policy.Spec.Steps) {
				limit, err := intstr.GetScaledValueFromIntOrPercent(&in.Policy.Spec.Steps[step].UpTo, len(in.Pods), true)
				require.NoError(t, err)
				require.LessOrEqual(t, upgraded, limit, "step %d", step+1)
			}
		} else if len(event.Message) > 7 && event.Message[:7] == "reached" {
			reachedAt, bake = event.After.Duration, in.Policy.Spec.Steps[step].Bake.Duration
			step++
		}
	}
}

func TestNotesSayWhatTheSimulationAssumes(t *testing.T) {
	in := input(policyOf(upTo("50%")), func(in *Input) {
		in.Set.Spec.UpdateStrategy.Paused = true
		in.Pods = append(in.Pods[1:], injected(1, "agent:v2")...)
		in.Pods[0].Status.Conditions[0].Status = corev1.ConditionFalse
		in.Set.Status.Rollout = &v1alpha1.RolloutStatus{Quarantine: &v1alpha1.RolloutQuarantine{Hash: in.Set.Annotations[v1alpha1.HashAnnotation], Revision: "logs-1"}}
	})
	result := run(t, in)
	assert.True(t, result.Complete, result.End)
	assert.Equal(t, []string{
		"spec.updateStrategy.paused is true; the simulation ignores it",
		"1 pod is updated already; the simulation begins with the first step",
		"the content of the SidecarSet is quarantined; the simulation rolls it out",
		"1 pod is not ready now; the simulation assumes that an upgrade makes pods ready",
	}, result.Notes)
	assert.Equal(t, 19, result.Upgraded)
	assert.Equal(t, 3, result.Most.PerOwner)
}

func TestASimulationEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ctx, input(policyOf()))
	require.ErrorIs(t, err, context.Canceled)
}

// ofMemory returns a SidecarSet whose sidecar has the last of the given amounts of memory. The status contains
// the hashes of all amounts.
func ofMemory(amounts ...string) *v1alpha1.SidecarSet {
	var set *v1alpha1.SidecarSet
	var hashes []string
	for _, amount := range amounts {
		set = sidecars("agent:v1")
		set.Spec.Containers[0].Resources = fixture.Memory(amount)
		hashes = append(hashes, fixture.Hashed(set).Annotations[v1alpha1.HashWithoutImageAnnotation])
	}
	set.Status.ResizableHashes = hashes
	return set
}

// resizable changes pods so that their kubelets can resize the sidecar from 64Mi.
func resizable(pods []*corev1.Pod) {
	former := ofMemory("64Mi")
	for _, pod := range pods {
		pod.Annotations[v1alpha1.HashAnnotation] = fixture.HashEntry(former, v1alpha1.HashAnnotation)
		pod.Annotations[v1alpha1.HashWithoutImageAnnotation] = fixture.HashEntry(former, v1alpha1.HashWithoutImageAnnotation)
		pod.Spec.Containers[0].Resources, pod.Status.ObservedGeneration = fixture.Memory("64Mi"), 1
	}
}

func TestSpec7_9_ASimulatedResizeMakesNoPodUnavailable(t *testing.T) {
	result := run(t, input(policyOf(upTo("100%")), func(in *Input) {
		in.Set = ofMemory("64Mi", "96Mi")
		maxUnavailable(in.Set, "1")
		resizable(in.Pods)
	}))
	require.True(t, result.Complete, result.End)
	assert.Equal(t, []int{20, 0}, []int{result.Upgraded, result.Most.Pods})
}

// The kubelet defers the resize to an earlier version.
func TestSpec7_9_ASimulationContinuesWithPodsThatAreBeingResized(t *testing.T) {
	result := run(t, input(policyOf(upTo("100%")), func(in *Input) {
		in.Set = ofMemory("64Mi", "96Mi")
		maxUnavailable(in.Set, "1")
		resizable(in.Pods)
		for _, pod := range in.Pods[:2] {
			pod.Annotations[v1alpha1.ResizeAnnotation] = `{"logs":"another"}`
			pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{RestartPolicy: corev1.RestartContainer}}
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue})
		}
	}))
	assert.True(t, result.Complete, result.End)
}

// The simulation assumes that the nodes respond again.
func TestSpec7_2_ASimulationContinuesWithPodsOnLostNodes(t *testing.T) {
	result := run(t, input(policyOf(upTo("100%")), func(in *Input) {
		for _, pod := range in.Pods[:2] {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
		}
	}))
	require.True(t, result.Complete, result.End)
	assert.Equal(t, 20, result.Upgraded)
}
