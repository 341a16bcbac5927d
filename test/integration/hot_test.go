package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

const emptyImage = "empty:1"

// newHotScenario creates a scenario whose sidecar is upgraded hot.
func newHotScenario(t *testing.T, n int32) *scenario {
	t.Helper()
	return newScenario(t, n, hot(3))
}

// hot returns a function that configures hot upgrades, with limit as maxUnavailable.
func hot(limit int32) func(*v1alpha1.SidecarSet) {
	return func(set *v1alpha1.SidecarSet) {
		set.Spec.Containers[0].UpgradeStrategy = v1alpha1.SidecarContainerUpgradeStrategy{
			UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: emptyImage,
		}
		set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(limit))
	}
}

// twins returns the number of pods for each combination of the images of the active and the standby twin.
func (s *scenario) twins() map[string]int {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, stack.kube.List(s.ctx, &pods, client.InNamespace(s.name)))
	found := map[string]int{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		images, running := map[string]string{}, map[string]string{}
		for _, c := range pod.Spec.Containers {
			images[c.Name] = c.Image
		}
		for _, c := range pod.Status.ContainerStatuses {
			running[c.Name] = fmt.Sprint(c.Image, " ", c.Ready)
			if c.Name == "app" {
				assert.Zero(s.t, c.RestartCount, "the app of %s restarted", pod.Name)
			}
		}
		active, standby := "side-1", "side-2"
		if pod.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation] == `{"side":"side-2"}` {
			active, standby = standby, active
		}
		found[fmt.Sprintf("%s+%s running %s+%s", images[active], images[standby], running[active], running[standby])]++
	}
	return found
}

// awaitTwins waits until each of n pods has an active twin with image and a standby twin with the empty
// image.
func (s *scenario) awaitTwins(n int, image string) {
	s.t.Helper()
	want := fmt.Sprintf("%s+%s running %s true+%s true", image, emptyImage, image, emptyImage)
	s.poll("one active twin and one empty one in each pod", func() (bool, error) {
		return s.twins()[want] == n, nil
	})
}

func TestSpec7_7_HotUpgradeSwitchesTwins(t *testing.T) {
	t.Parallel()
	s := newHotScenario(t, 8)
	for _, image := range []string{"side:v2", "side:v3"} {
		s.upgradeTo(image)
		s.awaitTwins(8, image)
		s.awaitPhase(protocol.PhaseComplete)
		s.awaitSet("counts", counts(8))
	}
	events, err := kubectl(s.ctx, "", "get", "events", "-n", s.name, "--field-selector=reason=ResetContainerSucceed", "-o", "name")
	require.NoError(t, err, events)
	assert.NotEmpty(t, events)
}

func TestSpec7_7_FailingImageLeavesTheStandbyServingUntilItIsMended(t *testing.T) {
	t.Parallel()
	s := newHotScenario(t, 4)
	s.upgradeTo("side:bad")
	s.poll("three pods to hold the bad image beside the old one", func() (bool, error) {
		stuck := 0
		for twins, n := range s.twins() {
			if len(twins) > len("side:bad+side:v1") && twins[:len("side:bad+side:v1")] == "side:bad+side:v1" {
				stuck += n
			}
		}
		return stuck == 3, nil
	})
	assert.Equal(t, 1, s.twins()["side:v1+empty:1 running side:v1 true+empty:1 true"], "maxUnavailable is three")
	s.upgradeTo("side:v2")
	s.awaitTwins(4, "side:v2")
	s.awaitPhase(protocol.PhaseComplete)
}

func TestSpec7_7_ARejectedResetStopsNoOtherAndIsRetried(t *testing.T) {
	t.Parallel()
	s := newHotScenario(t, 5)
	stuck := s.pods()[0].Name
	s.rejecting(stuck, "side-1")
	s.upgradeTo("side:v2")
	s.poll("all other pods to be done, and this one to keep its standby twin full", func() (bool, error) {
		twins := s.twins()
		return twins["side:v2+empty:1 running side:v2 true+empty:1 true"] == 4 && twins["side:v2+side:v1 running side:v2 true+side:v1 true"] == 1, nil
	})
	s.poll("the event about it", func() (bool, error) {
		out, err := kubectl(s.ctx, "", "get", "events", "-n", s.name, "--field-selector=reason=ResetContainerFailed,involvedObject.name="+stuck, "-o", "name")
		return strings.Contains(out, "event"), err
	})
	s.allowing()
	s.awaitTwins(5, "side:v2")
	s.awaitPhase(protocol.PhaseComplete)
}

func TestSpec7_1_PauseDoesNotStopResetsOfHotUpgrades(t *testing.T) {
	t.Parallel()
	s := newHotScenario(t, 6).slow("4s")
	s.upgradeTo("side:v2")
	s.poll("the first pods to migrate", func() (bool, error) { return len(s.twins()) > 1, nil })
	s.edit(`[{"op":"add","path":"/spec/updateStrategy/paused","value":true}]`)
	s.awaitPhase(protocol.PhasePaused)
	done := "side:v2+empty:1 running side:v2 true+empty:1 true"
	before := "side:v1+empty:1 running side:v1 true+empty:1 true"
	s.poll("begun pods to be reset", func() (bool, error) {
		twins := s.twins()
		return twins[done]+twins[before] == 6 && twins[done] > 0, nil
	})
	assert.Positive(t, s.twins()[before], "nothing was left to pause")
	s.edit(`[{"op":"remove","path":"/spec/updateStrategy/paused"}]`)
	s.awaitTwins(6, "side:v2")
}

func TestSpec7_7_NewerGenerationInTheMiddleOfMigration(t *testing.T) {
	t.Parallel()
	s := newHotScenario(t, 6)
	s.upgradeTo("side:v2")
	s.poll("the first pods to migrate", func() (bool, error) { return len(s.twins()) > 1, nil })
	s.upgradeTo("side:v3")
	s.awaitTwins(6, "side:v3")
	s.awaitPhase(protocol.PhaseComplete)
}

func TestSpec7_7_WorkersKilledInTheMiddleOfMigration(t *testing.T) {
	s := newHotScenario(t, 6)
	s.upgradeTo("side:v2")
	s.poll("the first pods to migrate", func() (bool, error) { return len(s.twins()) > 1, nil })
	for _, name := range []string{"worker-1", "worker-2"} {
		require.NoError(t, stack.Kill(name))
		require.NoError(t, stack.StartAgain(s.ctx, name))
	}
	s.awaitTwins(6, "side:v2")
	s.awaitPhase(protocol.PhaseComplete)
}
