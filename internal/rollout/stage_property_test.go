package rollout

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
)

const stagedPopulations = populations / 10

// stagedSimulation is a simulation with random steps. A new generation begins with the first step.
type stagedSimulation struct {
	*simulation
	steps []intstr.IntOrString
	begun int
}

func newStagedSimulation(seed uint64) *stagedSimulation {
	s := &stagedSimulation{simulation: newSimulation(seed)}
	for range 1 + s.random.IntN(4) {
		number, percent := s.random.IntN(12), s.random.IntN(101)
		s.steps = append(s.steps, s.oneOf(intstr.FromInt(number), intstr.FromString(fmt.Sprintf("%d%%", percent))))
	}
	if s.random.IntN(3) == 0 {
		s.set.Spec.UpdateStrategy.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"z-0", "z-1"}},
		}}
	}
	s.begin(0)
	return s
}

// begin starts the step with the given index. After the last step, no step limits the rollout.
func (s *stagedSimulation) begin(index int) {
	s.begun = s.generation
	s.stage = &protocol.Stage{Policy: "p", Steps: len(s.steps), Index: index, Done: index >= len(s.steps)}
	if !s.stage.Done {
		s.stage.Step = &protocol.Step{UpTo: s.steps[index]}
	}
}

// advance records that the current step is reached. If the step is already recorded as reached, advance begins
// the next step.
func (s *stagedSimulation) advance() {
	if s.stage.Reached != nil {
		s.begin(s.stage.Index + 1)
		return
	}
	reached := *s.stage
	reached.Reached = &noon
	s.stage = &reached
}

func (s *simulation) selects(pod *Pod) bool {
	return s.set.Spec.UpdateStrategy.Selector == nil || pod.Labels["zone"] != "z-2"
}

// upTo returns the number of pods up to which the current step upgrades (SPEC §11.2). upTo does not use the
// planner.
func (s *simulation) upTo() int {
	updated, outdated := 0, 0
	for i := range s.pods {
		switch pod := &s.pods[i]; {
		case pod.Updated:
			updated++
		case pod.Upgradable && s.selects(pod):
			outdated++
		}
	}
	if s.stage.Step.UpTo.Type == intstr.Int {
		return int(s.stage.Step.UpTo.IntVal)
	}
	withinPartition := max(len(s.pods)-s.keeps(len(s.pods))-updated, 0)
	return percentOf(s.stage.Step.UpTo.StrVal, updated+min(outdated, withinPartition))
}

// assertWithinStep checks the pods against the current step and the update selector.
func (s *simulation) assertWithinStep(t *testing.T) {
	t.Helper()
	for i := range s.pods {
		require.True(t, !s.pods[i].UpgradedToVersion || s.selects(&s.pods[i]), "pod %s is not selected", s.pods[i].Name)
	}
	if s.stage == nil || s.stage.Done {
		return
	}
	require.Nil(t, s.stage.Reached, "a pod was upgraded in a step that is reached")
	require.LessOrEqual(t, updatedOf(s.pods), s.upTo(), "more pods were upgraded than step %s allows", s.stage.Step.UpTo.String())
}

// batch upgrades pods as UpgradeBatch does, while the cluster changes and the cache is outdated.
func (s *stagedSimulation) batch(t *testing.T, left []protocol.SelectedPod, generation int) {
	t.Helper()
	for old := s.view(); len(left) > 0 && s.random.IntN(4) > 0; {
		left = s.refill(t, left, old, generation)
		s.happen()
	}
}

func (s *stagedSimulation) everyPod() []protocol.SelectedPod {
	var all []protocol.SelectedPod
	for i := range s.pods {
		all = append(all, protocol.SelectedPod{PodReference: s.pods[i].Reference()})
	}
	return all
}

func TestSpec11_2_StepsAreKeptAtEveryInstantInAnyPopulation(t *testing.T) {
	advanced := 0
	for seed := range uint64(stagedPopulations) {
		s := newStagedSimulation(seed)
		for range 40 {
			if s.begun != s.generation {
				s.begin(0)
			}
			generation := s.generation
			plan, err := NextInStage(s.set, s.view(), nil, s.stage)
			require.NoError(t, err)
			left := slices.Concat(plan.Pods, plan.Queued)
			if s.stage.Reached != nil {
				require.Empty(t, left, "seed %d: a step that is reached", seed)
			}
			if s.random.IntN(2) == 0 {
				// Refills stay within the step even if the batch has more pods.
				left = s.everyPod()
			}
			for range s.random.IntN(3) {
				s.happen()
			}
			s.batch(t, left, generation)
			if plan.Phase == protocol.PhaseStepReached && s.random.IntN(2) == 0 {
				s.advance()
				advanced++
			}
		}
	}
	require.Greater(t, advanced, stagedPopulations/2, "too few steps were reached for a test of steps")
}

func TestSpec11_2_EveryRolloutEndsAsItsStepsAdvance(t *testing.T) {
	reached := 0
	for seed := range uint64(stagedPopulations) {
		s := newStagedSimulation(seed)
		for range 5 {
			s.happen()
		}
		s.begin(0)
		var plan Plan
		for range 200 {
			var err error
			plan, err = NextInStage(s.set, s.view(), nil, s.stage)
			require.NoError(t, err)
			if plan.Phase.Ended() {
				break
			}
			if plan.Phase == protocol.PhaseStepReached {
				require.Empty(t, plan.Pods, "seed %d", seed)
				require.GreaterOrEqual(t, updatedOf(s.pods), min(s.upTo(), updatedOf(s.pods)+plan.Counts.Remaining), "seed %d: a step with fewer pods is reached", seed)
				s.advance()
				reached++
			}
			s.apply(t, plan.Pods, len(s.pods), s.generation)
			for i := range s.pods {
				s.kubelet(&s.pods[i])
			}
		}
		require.True(t, plan.Phase.Ended(), "seed %d: %s: %s", seed, plan.Phase, plan.Message)
		for i := range s.pods {
			pod := &s.pods[i]
			outdated := !pod.Updated && pod.Upgradable && s.selects(pod)
			require.False(t, outdated && updatedOf(s.pods) < len(s.pods)-s.keeps(len(s.pods)), "seed %d: pod %s is left", seed, pod.Name)
		}
	}
	require.Greater(t, reached, stagedPopulations, "too few steps were reached for a test of steps")
}
