package view

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/revision"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

func golden(t *testing.T, name string, text func(Style) string, change ...func(*Style)) {
	t.Helper()
	style := Style{Now: noon}
	for _, one := range change {
		one(&style)
	}
	got := text(style)
	file := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

func wide(s *Style) { s.Wide = true }

// logs returns a SidecarSet and its two recorded revisions.
func logs(t *testing.T) (*v1alpha1.SidecarSet, []*appsv1.ControllerRevision) {
	t.Helper()
	set := fixture.SidecarSet("logs", fixture.Sidecar("agent"))
	set.UID, set.CreationTimestamp, set.Generation = "uid-of-logs", ago(time.Hour), 2
	var sorted []*appsv1.ControllerRevision
	for number, image := range []string{"agent:v1", "agent:v2"} {
		set.Spec.Containers[0].Image = image
		fixture.Hashed(set)
		one, err := revision.New(set, "kruise-system", int64(number+1))
		require.NoError(t, err)
		one.CreationTimestamp = ago(time.Duration(60-20*number) * time.Minute)
		sorted = append(sorted, one)
	}
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(2))
	set.Status = v1alpha1.SidecarSetStatus{ObservedGeneration: 2, MatchedPods: 6, UpdatedPods: 3, ReadyPods: 4, LatestRevision: sorted[1].Name, Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionProgressing, Status: "True", Reason: v1alpha1.ReasonWaitingForPods, Message: "on its way", LastTransitionTime: ago(40 * time.Second)},
		{Type: v1alpha1.ConditionDegraded, Status: "True", Reason: "ImagePullBackOff", Message: "1 of 6 pods has a sidecar that cannot start", LastTransitionTime: ago(30 * time.Second)},
	}}
	return set, sorted
}

// logsOf returns the SidecarSet logs with an image.
func logsOf(image string) *v1alpha1.SidecarSet {
	return fixture.SidecarSet("logs", fixture.Sidecar("agent", func(c *v1alpha1.SidecarContainer) { c.Image = image }))
}

// recordVersion records the version of a SidecarSet in a pod.
func recordVersion(t *testing.T, p *corev1.Pod, set *v1alpha1.SidecarSet) {
	t.Helper()
	p.Annotations = map[string]string{v1alpha1.InjectedListAnnotation: set.Name}
	for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation} {
		entries, err := record.Format(record.Entries{set.Name: {Hash: set.Annotations[key], SidecarSetName: set.Name}})
		require.NoError(t, err)
		p.Annotations[key] = entries
	}
}

// rehash replaces the hashes of from in the annotations of a pod with the hashes of to.
func rehash(p *corev1.Pod, from, to *v1alpha1.SidecarSet) {
	for key, value := range p.Annotations {
		for _, hash := range []string{v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation} {
			value = strings.ReplaceAll(value, from.Annotations[hash], to.Annotations[hash])
		}
		p.Annotations[key] = value
	}
}

// pod returns a ready pod with a version of the SidecarSet logs.
func pod(t *testing.T, name, image string, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	p := fixture.Pod(fixture.Container("app"), fixture.Container("agent"))
	p.Name, p.UID, p.CreationTimestamp = name, types.UID("uid-of-"+name), ago(50*time.Minute)
	p.Labels["pod-template-hash"] = "5d6"
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-5d6", Controller: new(true)}}
	p.Spec.NodeName = "node-1"
	p.Spec.Containers[1].Image = image
	recordVersion(t, p, logsOf(image))
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(50 * time.Minute)}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "app", Image: "app:v1", ImageID: "id-app", Ready: true}, {Name: "agent", Image: image, ImageID: "id-" + image, Ready: true},
	}
	for _, one := range change {
		one(p)
	}
	return p
}

// written returns a function that marks a pod as upgraded at the time d before noon. The kubelet has not
// observed the change. If reason is set, the container waits with this reason.
func written(t *testing.T, d time.Duration, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		states, err := record.Format(record.States{"logs": {Revision: logsOf("agent:v2").Annotations[v1alpha1.HashAnnotation], UpdateTimestamp: ago(d), LastContainerStatuses: map[string]record.ContainerStatus{"agent": {ImageID: "id-agent:v1"}}}})
		require.NoError(t, err)
		p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = states
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.ContainerStatuses[1] = corev1.ContainerStatus{Name: "agent", Image: "agent:v1", ImageID: "id-agent:v1"}
		if reason != "" {
			p.Status.ContainerStatuses[1].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
		}
	}
}

// lacking returns a pod that was not injected.
func lacking(t *testing.T, name string, age time.Duration) *corev1.Pod {
	return pod(t, name, "agent:v1", func(p *corev1.Pod) { p.Annotations, p.CreationTimestamp = nil, ago(age) })
}

func notUpgradable(p *corev1.Pod) {
	p.Annotations[v1alpha1.HashWithoutImageAnnotation] = `{"logs":{"hash":"another"}}`
}

func input(t *testing.T) *Input {
	set, sorted := logs(t)
	noLabels := func(string) (map[string]string, error) { return nil, nil }
	return &Input{Set: set, Revisions: sorted, NamespaceLabels: noLabels, SystemNamespace: "kruise-system", Pods: []*corev1.Pod{
		pod(t, "web-5d6-a", "agent:v2"),
		pod(t, "web-5d6-b", "agent:v2", written(t, 8*time.Second, "ContainerCreating")),
		pod(t, "web-5d6-c", "agent:v2", written(t, 30*time.Second, "ErrImagePull")),
		pod(t, "web-5d6-d", "agent:v1"),
		pod(t, "web-5d6-e", "agent:v1", notUpgradable),
		pod(t, "alone", "agent:v1", func(p *corev1.Pod) { p.OwnerReferences = nil }),
		pod(t, "ended", "agent:v1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
	}}
}

func TestARolloutInProgress(t *testing.T) {
	in := input(t)
	in.Run = RunInput{Status: &protocol.RolloutStatus{
		Generation: 2, Phase: protocol.PhaseWaiting, Batches: 2, Upgraded: 3, RejectedWrites: 1, Since: noon.Add(-40 * time.Second),
	}, Rejected: []protocol.RejectedPod{{PodReference: protocol.PodReference{Namespace: "default", Name: "alone", UID: "uid-of-alone"}, Reason: "denied by quota"}}}
	r, err := NewRollout(in)
	require.NoError(t, err)
	golden(t, "rollout", r.Text)
	golden(t, "rollout-wide", r.Text, wide)
	assert.Equal(t, "sidecarset/logs: Stalled (ImagePullBackOff), 3 of 6 pods updated, 1 of them ready; 2 to go, 2 unavailable of 2 allowed; 1 not upgradable in place, such as default/web-5d6-e; waiting for pods such as default/web-5d6-b", r.Line())
	done, err := r.Done()
	assert.False(t, done)
	require.NoError(t, err)
	in.Pods = append(in.Pods, lacking(t, "lacking", time.Minute))
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	golden(t, "why-rollout", why.Text)
}

func TestPodsThatAreNotReadyWithoutASlotAreCounted(t *testing.T) {
	in := input(t)
	before := func(p *corev1.Pod) {
		p.Annotations[v1alpha1.UnavailableSinceAnnotation] = `{"logs":"` + p.Status.Conditions[0].LastTransitionTime.Format(time.RFC3339) + `"}`
	}
	in.Pods = []*corev1.Pod{
		pod(t, "a", "agent:v2", written(t, time.Minute, "ErrImagePull")), pod(t, "b", "agent:v2", written(t, time.Minute, "ErrImagePull")),
		pod(t, "c", "agent:v2", written(t, time.Minute, "ErrImagePull"), before),
	}
	in.Run = RunInput{Status: &protocol.RolloutStatus{Generation: 2, Phase: protocol.PhaseWaiting, Batches: 1, Upgraded: 3, Since: noon}}
	shown := newRollout(t, in).Text(Style{Now: noon})
	assert.Contains(t, shown, " 3 of 3 updated, 0 of them ready, 0 to go\n")
	assert.Contains(t, shown, "Slots:     2 of 2 used (maxUnavailable 2), 1 more pod not ready (uses no slot)\n")
	assert.Contains(t, shown, ", 1 batch, 3 upgrades started\n")
}

func TestAPausedRolloutWithoutTemporal(t *testing.T) {
	in := input(t)
	in.Set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann", Reason: "errors in the logs"}}
	in.Set.Spec.UpdateStrategy.Partition = new(intstr.FromString("20%"))
	in.Run.Unknown = "Temporal at 127.0.0.1:7233, namespace default does not respond"
	in.Set.Status.ObservedGeneration = 1
	r, err := NewRollout(in)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhasePaused, r.Phase)
	golden(t, "rollout-paused", r.Text)
}

func TestAnOperatorThatIsBehindOrDownIsNamed(t *testing.T) {
	in := input(t)
	in.Set.Generation, in.SystemNamespace = 3, "sidecars"
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	assert.Equal(t, "the operator has not observed generation 3 yet; if this takes more than a few seconds: kubectl sidecarset check", why.Reasons[0])
	in.Fault = Fault{OperatorNotResponding, "the operator has not renewed Lease sidecars/outrigger-operator for 6s: CAUSE: COMMAND"}
	why, err = NewRolloutWhy(in)
	require.NoError(t, err)
	golden(t, "why-operator-down", why.Text)
	r, err := NewRollout(in)
	require.NoError(t, err)
	golden(t, "rollout-operator-down", r.Text)
	golden(t, "list-operator-down", NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set}, Fault: in.Fault, Now: noon}).Text)
}

func TestAWebhookThatDoesNotAnswerIsNamed(t *testing.T) {
	in := input(t)
	in.Set.Status.Conditions = append(in.Set.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionInjected, Status: "False", Reason: v1alpha1.ReasonWebhookUnavailable, Message: "the webhook does not respond", LastTransitionTime: ago(time.Minute)})
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	assert.Equal(t, "WebhookUnavailable: the webhook does not respond (kubectl sidecarset check)", why.Reasons[0])
	r, err := NewRollout(in)
	require.NoError(t, err)
	assert.Contains(t, r.Text(Style{Now: noon}), "Injected:  WebhookUnavailable: the webhook does not respond\n")
	assert.Contains(t, NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set}, Now: noon}).Text(Style{Now: noon}), "ImagePullBackOff,WebhookUnavailable")
}

func TestPausesOfTheSpecNeedAttention(t *testing.T) {
	in := input(t)
	in.Set.Spec.InjectionStrategy.Paused = true
	r, err := NewRollout(in)
	require.NoError(t, err)
	shown := r.Text(Style{Now: noon})
	assert.Contains(t, shown, "Injection: paused by spec.injectionStrategy.paused: new pods get no sidecars\n")
	assert.Contains(t, shown, `kubectl patch sidecarset logs --type=merge -p '{"spec":{"injectionStrategy":{"paused":false}}}'`)
	assert.Contains(t, NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set}, Now: noon}).Text(Style{Now: noon}), "ImagePullBackOff,InjectionPaused ")

	// The spec also pauses the next rollout.
	idle := v1alpha1.SidecarSet{}
	idle.Spec.UpdateStrategy.Paused = true
	idle.Status.MatchedPods, idle.Status.UpdatedPods, idle.Status.UpdatedReadyPods = 1, 1, 1
	assert.Equal(t, []string{"Paused"}, NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{idle}, Now: noon})[0].Attention)
}

func TestTheEndsOfARollout(t *testing.T) {
	end := func(change func(*Input)) (bool, error) {
		set, sorted := logs(t)
		in := &Input{Set: set, Revisions: sorted, Pods: []*corev1.Pod{pod(t, "a", "agent:v2"), pod(t, "b", "agent:v2")}}
		change(in)
		r, err := NewRollout(in)
		require.NoError(t, err)
		return r.Done()
	}
	done, err := end(func(*Input) {})
	assert.True(t, done)
	require.NoError(t, err)
	done, _ = end(func(in *Input) { in.Set.Generation = 3 })
	assert.False(t, done, "the generation is not observed")
	done, err = end(func(in *Input) {
		in.Pods[1] = pod(t, "b", "agent:v1")
		in.Set.Spec.UpdateStrategy.Partition = new(intstr.FromInt32(1))
	})
	assert.True(t, done, "the partition is reached")
	require.NoError(t, err)
	done, err = end(func(in *Input) { in.Pods[1] = pod(t, "b", "agent:v1", notUpgradable) })
	assert.True(t, done)
	require.ErrorContains(t, err, "1 pod cannot be upgraded in place")
	_, err = end(func(in *Input) {
		in.Set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
	})
	require.ErrorContains(t, err, "upgrades are disabled")
}

func TestASidecarSetWithoutPods(t *testing.T) {
	set, _ := logs(t)
	r, err := NewRollout(&Input{Set: set})
	require.NoError(t, err)
	golden(t, "rollout-empty", r.Text)
}

func TestPodsThatAreBehind(t *testing.T) {
	in := input(t)
	old, err := Outdated(in)
	require.NoError(t, err)
	in.Pods = append(in.Pods, lacking(t, "older", 2*time.Hour), lacking(t, "later", time.Minute))
	missing, err := Missing(in)
	require.NoError(t, err)
	golden(t, "behind", append(old, missing...).Text)
	golden(t, "behind-none", BehindPods{}.Text)
	golden(t, "list", NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set}, Now: noon}).Text)
	golden(t, "list-wide", NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set}, Now: noon}).Text, wide)
	golden(t, "list-none", Summaries{}.Text)
	critical := lacking(t, "proxy", time.Minute)
	critical.Namespace, critical.Spec.PriorityClassName = "kube-system", "system-node-critical"
	in.Pods = []*corev1.Pod{critical}
	missing, err = Missing(in)
	require.NoError(t, err)
	assert.Empty(t, missing, "the webhook is never called for it")
	in.Pods = []*corev1.Pod{lacking(t, "later", time.Minute)}
	in.NamespaceLabels = func(string) (map[string]string, error) {
		return map[string]string{v1alpha1.InjectionLabel: v1alpha1.InjectionDisabled}, nil
	}
	missing, err = Missing(in)
	require.NoError(t, err)
	assert.Empty(t, missing)
	removed := lacking(t, "removed", time.Minute)
	removed.Namespace = "removed"
	in.Pods = append(in.Pods, removed)
	in.NamespaceLabels = func(name string) (map[string]string, error) {
		if name == "removed" {
			return noNamespace(name)
		}
		return nil, nil
	}
	missing, err = Missing(in)
	require.NoError(t, err)
	require.Len(t, missing, 1, "a pod in a removed namespace hides no other pod")
	assert.Equal(t, "later", missing[0].Name)
}

func TestHistoryNamesUsersAndChanges(t *testing.T) {
	in := input(t)
	in.Pods = append(in.Pods, pod(t, "damaged", "agent:v1", damaged), pod(t, "completed", "agent:v1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
	in.Revisions[1].Annotations[v1alpha1.ChangeCauseAnnotation] = "faster\n start"
	at := ago(20 * time.Minute)
	in.Set.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "argocd", Operation: metav1.ManagedFieldsOperationApply, Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:containers":{}}}`)},
		{Manager: "outrigger", Operation: metav1.ManagedFieldsOperationUpdate, Time: &at, Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
	}
	ended := noon.Add(-30 * time.Minute)
	h := NewHistory(in, RunHistory{Runs: []RunRow{
		{RunID: "r1", Generation: 1, Status: "Completed", Phase: protocol.PhaseComplete, Images: "agent=agent:v1", Started: noon.Add(-31 * time.Minute), Ended: &ended},
		{RunID: "r2", Generation: 2, Status: "Running", Phase: protocol.PhaseWaiting, Started: noon.Add(-40 * time.Second)},
	}, Changes: []Change{{At: noon.Add(-10 * time.Second), By: "ann", Action: "paused", Reason: "errors"}}})
	golden(t, "history", h.Text)
	h.RunHistory = RunHistory{RunsUnknown: "Temporal does not respond"}
	golden(t, "history-without-runs", h.Text)
	h.ChangesUnknown = "Temporal at 127.0.0.1:7233, namespace default does not respond"
	out := h.Text(Style{Now: noon})
	assert.True(t, strings.HasSuffix(out, "\n\nPauses and resumes are incomplete: "+h.ChangesUnknown+"\n"), out)
}

func TestWordsAreColoured(t *testing.T) {
	r, err := NewRollout(input(t))
	require.NoError(t, err)
	out := r.Text(Style{Now: noon, Paint: func(tone Tone, word string) string {
		if tone == Bad {
			return "<" + word + ">"
		}
		return word
	}})
	assert.Contains(t, out, "web-5d6-c  <Failing> for 30s, agent: ImagePullBackOff")
}

func TestAHotUpgradeWaitsForItsTwins(t *testing.T) {
	set, sorted := logs(t)
	set.Spec.Containers[0].UpgradeStrategy = v1alpha1.SidecarContainerUpgradeStrategy{UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: "empty:v1"}
	p := pod(t, "p", "agent:v2", written(t, 3*time.Second, ""))
	rehash(p, logsOf("agent:v2"), fixture.Hashed(set))
	active, standby := fixture.Container("agent-2"), fixture.Container("agent-1")
	active.Image, standby.Image = "agent:v2", "agent:v1"
	p.Spec.Containers = []corev1.Container{fixture.Container("app"), standby, active}
	p.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation] = `{"agent":"agent-2"}`
	p.Annotations[v1alpha1.VersionAnnotationPrefix+"agent-1"] = "7"
	p.Status.Conditions[0].Status = corev1.ConditionTrue
	p.Status.ContainerStatuses = nil
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "id-" + c.Image, Ready: true})
	}
	show := func() Pod {
		r, err := NewRollout(&Input{Set: set, Revisions: sorted, Pods: []*corev1.Pod{p}})
		require.NoError(t, err)
		return r.Revisions[0].Owners[0].Pods[0]
	}
	assert.Equal(t, []any{PodMigrating, "the standby container is reset next"}, []any{show().Phase, show().Reason})
	p.Status.ContainerStatuses[2].Ready = false
	assert.Equal(t, []any{PodMigrating, "not ready: agent-2"}, []any{show().Phase, show().Reason})
	p.Status.ContainerStatuses[2].Ready, p.Spec.Containers[1].Image = true, "empty:v1"
	assert.Equal(t, PodUpdated, show().Phase)
}
