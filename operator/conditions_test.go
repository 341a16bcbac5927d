package operator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/operator/runs"
)

const generation = 3

// setAt returns a SidecarSet of generation 3. If started is not zero, status contains a rollout of generation
// started.
func setAt(started int64) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "mesh", UID: "set-uid", Generation: generation}}
	if started > 0 {
		set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: started}
	}
	return set
}

func plan(phase protocol.Phase, counts protocol.Counts) rollout.Plan {
	p := rollout.Plan{Phase: phase, Message: "message", Counts: counts, MaxUnavailable: 1}
	for range counts.NotUpgradable {
		p.NotUpgradable = append(p.NotUpgradable, protocol.PodReference{Namespace: "shop", Name: "old"})
	}
	return p
}

func TestSpec8_ConditionsGiveOneExactReason(t *testing.T) {
	all := protocol.Counts{Matched: 4, Updated: 4, Ready: 4, UpdatedReady: 4}
	half := protocol.Counts{Matched: 4, Updated: 2, Ready: 3, UpdatedReady: 1, Unavailable: 1, Remaining: 2}
	last := protocol.Counts{Matched: 4, Updated: 4, Ready: 3, UpdatedReady: 3, Unavailable: 1, Converging: 1}
	away := errors.New("Temporal is away")
	broken := rollout.BrokenPods{Count: 1, Newest: 1, Reason: podstate.ImagePullBackOff, Example: "shop/p", Detail: "container x: ImagePullBackOff, image x:v9"}
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	good := condition{no, "AsExpected", ""}
	ready := condition{yes, "AsExpected", "4 of 4 pods ready"}
	almost := condition{yes, "AsExpected", "3 of 4 pods ready"}

	for _, c := range []struct {
		name                             string
		started                          int64
		seen                             observation
		progressing, available, degraded condition
		injected                         *condition
	}{
		{name: "complete", started: generation, seen: observation{plan: plan(protocol.PhaseComplete, all)},
			progressing: condition{no, "RolloutComplete", "message"}, available: ready, degraded: good},
		{name: "complete needs no Temporal", started: generation, seen: observation{plan: plan(protocol.PhaseComplete, all), temporal: away},
			progressing: condition{no, "RolloutComplete", "message"}, available: ready, degraded: good},
		{name: "no pods", started: generation, seen: observation{plan: plan(protocol.PhaseComplete, protocol.Counts{})},
			progressing: condition{no, "RolloutComplete", "message"}, available: condition{yes, "AsExpected", "0 of 0 pods ready"}, degraded: good},
		{name: "progressing", started: generation, seen: observation{plan: plan(protocol.PhaseProgressing, half)},
			progressing: condition{yes, "RolloutInProgress", "message"}, available: almost, degraded: good},
		{name: "waiting", started: generation, seen: observation{plan: plan(protocol.PhaseWaiting, half)},
			progressing: condition{yes, "WaitingForPods", "message"}, available: almost, degraded: good},
		{name: "partition reached", started: generation, seen: observation{plan: plan(protocol.PhasePartitionReached, all)},
			progressing: condition{no, "PartitionReached", "message"}, available: ready, degraded: good},
		{name: "paused", started: generation, seen: observation{plan: plan(protocol.PhasePaused, half)},
			progressing: condition{no, "Paused", "paused (updateStrategy.paused); message"}, available: almost, degraded: good},
		{name: "NotUpdate does not mention pods that are not upgraded", started: generation,
			seen:        observation{plan: plan(protocol.PhaseNotUpdate, protocol.Counts{Matched: 4, Ready: 4, NotUpgradable: 4})},
			progressing: condition{no, "NotUpdate", "upgrades are off (updateStrategy.type NotUpdate); message"}, available: ready, degraded: good},
		{name: "paused by signal", started: generation, seen: observation{plan: plan(protocol.PhaseProgressing, half), pause: &v1alpha1.RolloutPause{By: "ann", Reason: "lunch"}},
			progressing: condition{no, "Paused", "paused by signal from ann: lunch; message"}, available: almost, degraded: good},
		{name: "paused by an anonymous signal while pods converge", started: generation, seen: observation{plan: plan(protocol.PhaseWaiting, half), pause: &v1alpha1.RolloutPause{}},
			progressing: condition{no, "Paused", "paused by signal; message"}, available: almost, degraded: good},
		{name: "paused by signal with nothing left", started: generation, seen: observation{plan: plan(protocol.PhaseComplete, all), pause: &v1alpha1.RolloutPause{}},
			progressing: condition{no, "RolloutComplete", "message"}, available: ready, degraded: good},
		{name: "paused by a policy while the last pods fail", started: generation,
			seen:        observation{plan: plan(protocol.PhaseWaiting, last), pause: &v1alpha1.RolloutPause{By: "RolloutPolicy edge", Reason: "1 pods failed"}},
			progressing: condition{no, "Paused", "paused by RolloutPolicy edge: 1 pods failed; message"}, available: almost, degraded: good},
		{name: "paused by signal while the last pods converge", started: generation, seen: observation{plan: plan(protocol.PhaseWaiting, last), pause: &v1alpha1.RolloutPause{By: "ann"}},
			progressing: condition{yes, "WaitingForPods", "message"}, available: almost, degraded: good},
		{name: "frozen", started: generation, seen: observation{plan: plan(protocol.PhaseFrozen, half), frozenReason: "Frozen"},
			progressing: condition{no, "Frozen", "message"}, available: almost, degraded: good},
		{name: "frozen, and Temporal is away", started: generation, seen: observation{plan: plan(protocol.PhaseFrozen, half), frozenReason: "Frozen", temporal: away},
			progressing: condition{no, "Frozen", "message"}, available: almost, degraded: good},
		{name: "frozen, and paused by signal", started: generation, seen: observation{plan: plan(protocol.PhaseFrozen, half), frozenReason: "Frozen", pause: &v1alpha1.RolloutPause{By: "ann"}},
			progressing: condition{no, "Paused", "paused by signal from ann; message"}, available: almost, degraded: good},
		{name: "no worker", started: generation, seen: observation{plan: plan(protocol.PhaseProgressing, half), fault: runs.Fault{Reason: "WorkerUnavailable", Message: "nobody"}, broken: broken},
			progressing: condition{no, "WorkerUnavailable", "nobody; message"}, available: almost, degraded: condition{yes, "WorkerUnavailable", "nobody; check it: kubectl sidecarset check"}},
		{name: "no key", started: generation, seen: observation{plan: plan(protocol.PhaseProgressing, half), fault: runs.Fault{Reason: "RunUnreadable", Message: "no key"}},
			progressing: condition{no, "RunUnreadable", "no key; message"}, available: almost, degraded: condition{yes, "RunUnreadable", "no key; check it: kubectl sidecarset check"}},
		{name: "no key for the pause of the run, whose user was known before", started: generation,
			seen:        observation{plan: plan(protocol.PhaseProgressing, half), fault: runs.Fault{Reason: "RunUnreadable", Message: "no key"}, pause: &v1alpha1.RolloutPause{By: "ann"}},
			progressing: condition{no, "Paused", "paused by signal from ann; message"}, available: almost, degraded: condition{yes, "RunUnreadable", "no key; check it: kubectl sidecarset check"}},
		{name: "throttled", started: generation, seen: observation{plan: plan(protocol.PhaseProgressing, half), temporal: runs.ThrottledError{Address: "host:1", Namespace: "ns"}},
			progressing: condition{no, "EngineThrottled", runs.ThrottledError{Address: "host:1", Namespace: "ns"}.Error() + "; message"}, available: almost,
			degraded: condition{yes, "EngineThrottled", runs.ThrottledError{Address: "host:1", Namespace: "ns"}.Error() + "; check it: kubectl sidecarset check"}},
		{name: "not upgradable", started: generation,
			seen:        observation{plan: plan(protocol.PhaseComplete, protocol.Counts{Matched: 4, Updated: 3, Ready: 4, UpdatedReady: 3, NotUpgradable: 1})},
			progressing: condition{no, "NotUpgradablePods", "message"}, available: ready,
			degraded: condition{yes, "NotUpgradablePods", "1 of 4 pods cannot be upgraded in place and keep their version until they are recreated, such as shop/old; see the field and the command: kubectl sidecarset why mesh"}},
		{name: "Temporal is away in the middle", started: generation, seen: observation{plan: plan(protocol.PhaseProgressing, half), temporal: away, broken: broken},
			progressing: condition{no, "EngineUnavailable", "Temporal is away; message"}, available: almost, degraded: condition{yes, "EngineUnavailable", "Temporal is away; check it: kubectl sidecarset check"}},
		{name: "Temporal is away while the last pods converge", started: generation,
			seen:        observation{plan: plan(protocol.PhaseWaiting, protocol.Counts{Matched: 4, Updated: 4, Ready: 3, Unavailable: 1, Converging: 1}), temporal: away},
			progressing: condition{yes, "WaitingForPods", "message"}, available: almost, degraded: good},
		{name: "Temporal is away before the start", started: generation - 1, seen: observation{plan: plan(protocol.PhaseComplete, all), temporal: away},
			progressing: condition{no, "EngineUnavailable", "Temporal is away; message"}, available: ready, degraded: condition{yes, "EngineUnavailable", "Temporal is away; check it: kubectl sidecarset check"}},
		{name: "Temporal is away, paused before the start", seen: observation{plan: plan(protocol.PhasePaused, half), temporal: away},
			progressing: condition{no, "Paused", "paused (updateStrategy.paused); message"}, available: almost, degraded: condition{yes, "EngineUnavailable", "Temporal is away; check it: kubectl sidecarset check"}},
		{name: "sidecar cannot start", started: generation, seen: observation{plan: plan(protocol.PhaseWaiting, half), broken: broken},
			progressing: condition{yes, "WaitingForPods", "message"}, available: almost,
			degraded: condition{yes, "ImagePullBackOff", "1 of 4 pods have a sidecar that cannot start, such as shop/p (container x: ImagePullBackOff, image x:v9); go back: kubectl sidecarset undo mesh"}},
		{name: "sidecar of earlier content cannot start", started: generation,
			seen:        observation{plan: plan(protocol.PhaseWaiting, half), broken: rollout.BrokenPods{Count: 1, Reason: podstate.ImagePullBackOff, Example: "shop/p", Detail: "d"}},
			progressing: condition{yes, "WaitingForPods", "message"}, available: almost,
			degraded: condition{yes, "ImagePullBackOff", "1 of 4 pods have a sidecar that cannot start, such as shop/p (d); none of them has the newest content yet: kubectl sidecarset why mesh"}},
		{name: "stored while the webhook was not called", started: generation, seen: observation{plan: plan(protocol.PhaseWaiting, half), outdatedHashes: true},
			progressing: condition{yes, "WaitingForPods", "message"}, available: almost,
			degraded: condition{yes, "OutdatedHashes", "no webhook was called when the SidecarSet was stored: the content was not validated, and the hash annotations do not match the content; " +
				"the rollout uses the content; to write the hashes after the webhook is available: kubectl patch sidecarset mesh --type=merge -p '{}'"}},
		{name: "damaged annotations", started: generation,
			seen:        observation{plan: plan(protocol.PhaseComplete, all), unreadable: rollout.UnreadablePods{Count: 2, Example: "shop/p", Cause: errors.New("annotation a: no JSON")}},
			progressing: condition{no, "RolloutComplete", "message"}, available: ready,
			degraded: condition{yes, "UnreadablePods", "2 pods are neither counted nor upgraded until their annotations are corrected or they are recreated, such as shop/p (annotation a: no JSON); list them: kubectl sidecarset list --outdated"}},
		{name: "more unready than allowed", started: generation, seen: observation{plan: plan(protocol.PhaseWaiting, protocol.Counts{Matched: 4, Ready: 2})},
			progressing: condition{yes, "WaitingForPods", "message"}, available: condition{no, "WaitingForPods", "2 of 4 pods ready"}, degraded: good},
		{name: "the only pod unready", started: generation, seen: observation{plan: plan(protocol.PhaseWaiting, protocol.Counts{Matched: 1})},
			progressing: condition{yes, "WaitingForPods", "message"}, available: condition{no, "WaitingForPods", "0 of 1 pods ready"}, degraded: good},
		{name: "invalid", seen: observation{invalid: errors.New("no hash"), temporal: away},
			progressing: condition{no, "Invalid", "no hash"}, available: condition{unknown, "Invalid", "the pods of this SidecarSet cannot be determined"},
			degraded: condition{yes, "Invalid", "no hash; correct it: kubectl edit sidecarset mesh"}, injected: &condition{unknown, "Invalid", "the pods of this SidecarSet cannot be determined"}},
		{name: "pods without the sidecar", started: generation,
			seen:        observation{plan: plan(protocol.PhaseComplete, all), uninjected: uninjectedPods{count: 2, example: "shop/p"}},
			progressing: condition{no, "RolloutComplete", "message"}, available: ready, degraded: good,
			injected: &condition{no, "PodsWithoutSidecar", "2 pods match but were not injected, such as shop/p; they get the sidecars once they are recreated"}},
		{name: "one pod without the sidecar", started: generation,
			seen:        observation{plan: plan(protocol.PhaseComplete, all), uninjected: uninjectedPods{count: 1, example: "shop/p"}},
			progressing: condition{no, "RolloutComplete", "message"}, available: ready, degraded: good,
			injected: &condition{no, "PodsWithoutSidecar", "1 pod matches but was not injected, shop/p; it gets the sidecars once it is recreated"}},
		{name: "the webhook does not respond", started: generation,
			seen:        observation{plan: plan(protocol.PhaseComplete, all), uninjected: uninjectedPods{count: 2, example: "shop/p"}, webhookFault: "fault"},
			progressing: condition{no, "RolloutComplete", "message"}, available: ready, degraded: good,
			injected: &condition{no, "WebhookUnavailable", "fault"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := time.Unix(1000, 500)
			p := &pass{observation: c.seen, set: setAt(c.started), now: at}
			setConditions(p)
			got := p.set.Status
			want := []metav1.Condition{}
			got.Conditions = got.Conditions[:4] // Ready and Stalled are derived from the other conditions
			injected := condition{yes, "AsExpected", ""}
			if c.injected != nil {
				injected = *c.injected
			}
			for i, v := range []condition{c.progressing, c.available, c.degraded, injected} {
				want = append(want, metav1.Condition{
					Type: []string{"Progressing", "Available", "Degraded", "Injected"}[i], Status: v.status, Reason: v.reason, Message: v.message,
					ObservedGeneration: generation, LastTransitionTime: metav1.Unix(1000, 0),
				})
			}
			assert.Equal(t, want, got.Conditions)

			before := p.set.Status.DeepCopy()
			p.now = at.Add(time.Hour)
			setConditions(p)
			assert.Equal(t, before, &p.set.Status, "what stays the same is not written again")
		})
	}
}

func TestSpec8_DegradedNamesTheWorkloadToRestart(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "u", OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: new(true)}}}}
	p := &pass{set: setAt(generation), pods: []*corev1.Pod{pod}}
	p.plan = rollout.Plan{Counts: protocol.Counts{NotUpgradable: 1}, NotUpgradable: []protocol.PodReference{{Namespace: "shop", Name: "db-0", UID: "u"}}}
	assert.Contains(t, degraded(p).message, "; recreate them: kubectl sidecarset restart mesh")
}

// The API server rejects a status with a message that is too long. Messages quote images and annotations, which
// any author of a pod can write.
func TestSpec8_NoTextOfAPodMakesAMessageTooLong(t *testing.T) {
	long := strings.Repeat("é", 40_000)
	p := &pass{set: setAt(generation), now: time.Unix(1000, 0)}
	p.plan = plan(protocol.PhaseProgressing, protocol.Counts{Matched: 1})
	p.unreadable = rollout.UnreadablePods{Count: 1, Example: "shop/a", Cause: errors.New(long)}
	setConditions(p)
	degraded := meta.FindStatusCondition(p.set.Status.Conditions, v1alpha1.ConditionDegraded)
	assert.Less(t, len(degraded.Message), 2_000)
	assert.Contains(t, degraded.Message, "list them: kubectl sidecarset list --outdated", "the next step stays")

	p.invalid = errors.New(long)
	setConditions(p)
	for _, c := range p.set.Status.Conditions {
		assert.LessOrEqual(t, len(c.Message), maxConditionMessage, c.Type)
	}
}

func TestTheFaultOfAnOperatorThatRestartedLacksTheNextStep(t *testing.T) {
	for _, want := range []runs.Fault{{Reason: "WorkerUnavailable", Message: "nobody"}, {Reason: "RolloutFailing", Message: "fails"},
		{Reason: "RolloutFailing", Message: "fails: RolloutPolicy p1: windows[0]: timeZone: unknown time zone Mars/X"}} {
		p := &pass{set: setAt(generation), observation: observation{fault: want}}
		p.set.Status.ObservedGeneration = generation
		setConditions(p)
		assert.Equal(t, want, faultOf(p.set))
	}
}

func TestSpec11_8_TheNextStepAfterAnInvalidWindowIsItsPolicy(t *testing.T) {
	fault := runs.Fault{Reason: "RolloutFailing", Message: "activity NextBatch fails repeatedly: RolloutPolicy p1: windows[0]: timeZone: unknown time zone Mars/X"}
	p := &pass{set: setAt(generation), observation: observation{fault: fault}}
	assert.Equal(t, fault.Message+"; correct RolloutPolicy p1: kubectl edit rolloutpolicy p1", degraded(p).message)
}

func TestAHotUpgradeIsNamedBesideTheReadyPods(t *testing.T) {
	p := &pass{set: setAt(generation), observation: observation{plan: plan(protocol.PhaseWaiting, protocol.Counts{Matched: 4, Ready: 1, Migrating: 3})}}
	assert.Equal(t, "1 of 4 pods ready, 3 in a hot upgrade", available(p).message)
}

func TestSpec1_StatusCountsBelongToTheObservedGeneration(t *testing.T) {
	p := &pass{set: setAt(0), now: time.Unix(1000, 0)}
	p.plan = plan(protocol.PhaseProgressing, protocol.Counts{Matched: 9, Updated: 5, Ready: 7, UpdatedReady: 4})
	describe(p)
	p.set.Status.Conditions = nil
	counted := v1alpha1.SidecarSetStatus{ObservedGeneration: generation, MatchedPods: 9, UpdatedPods: 5, ReadyPods: 7, UpdatedReadyPods: 4}
	assert.Equal(t, counted, p.set.Status)

	later := &pass{set: p.set, now: time.Unix(2000, 0)}
	later.invalid = errors.New("no hash")
	describe(later)
	later.set.Status.Conditions = nil
	assert.Equal(t, counted, later.set.Status, "pods that cannot be determined change no count of a generation")

	later.set.Generation++
	describe(later)
	later.set.Status.Conditions = nil
	counted.ObservedGeneration, counted.UpdatedPods, counted.UpdatedReadyPods = later.set.Generation, 0, 0
	assert.Equal(t, counted, later.set.Status, "no pod is updated to an invalid generation")
}

func TestSpec8_DegradedShowsThatInvalidSelectorsRejectPods(t *testing.T) {
	set := &v1alpha1.SidecarSet{}
	set.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
	_, err := rollout.Population(set, nil, nil)
	p := &pass{set: set, observation: observation{invalid: err}}
	assert.Equal(t, condition{metav1.ConditionTrue, "Invalid",
		`SidecarSet : spec.selector: "Is" is not a valid label selector operator; until it is corrected, new pods that the SidecarSet could match are rejected; correct it: kubectl edit sidecarset `}, degraded(p))
	set.Spec.InjectionStrategy.Paused = true
	assert.Equal(t, condition{metav1.ConditionTrue, "Invalid", `SidecarSet : spec.selector: "Is" is not a valid label selector operator; correct it: kubectl edit sidecarset `}, degraded(p))
}
