package rollout_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/upgrade"
)

// simulation is a cluster during rollouts: pods with real patches, slow kubelets with clock
// skew, crashing apps, and new generations.
type simulation struct {
	// runEnded is the generation of the newest run that has completed.
	runEnded       int64
	t              *testing.T
	random         *rand.Rand
	now            time.Time
	set            *v1alpha1.SidecarSet
	maxUnavailable int
	hot            bool
	pods           []*simulated
	left           []protocol.SelectedPod
	// before is the image of the previous generation.
	before string
	// digests maps each tag to the digest of the image.
	digests map[string]string
	// version is the resourceVersion of the SidecarSet.
	version int
	// planned is the generation of the batch. left contains the remaining pods of the batch.
	planned int64
}

// simulated is a pod and its kubelet. The model determines the state of the pod without the annotations.
type simulated struct {
	*corev1.Pod
	skew, restartTime, readyTime time.Duration
	// runs is the image that each container runs. busy is the time at which the kubelet restarts the
	// container. readyAt is the time at which the pod becomes ready. If the app crashed, crashed is true
	// until the pod becomes ready.
	runs    map[string]string
	busy    time.Time
	readyAt time.Time
	crashed bool
	// broken is set if the app of the pod never becomes ready again. scheduled is set if the pod has a node.
	broken, scheduled bool
	// upgraded is set if a rollout that has not ended has upgraded the pod.
	upgraded bool
	// unavailable is set if the pod was ready when it was upgraded, and has not converged since.
	unavailable bool
}

const bad = "side:bad"

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{t: t, random: rand.New(rand.NewPCG(seed, 2)), now: time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC), hot: seed%3 == 0, digests: map[string]string{}}
	s.maxUnavailable = 1 + s.random.IntN(4)
	s.set = &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "u"}}
	s.set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	s.set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt(s.maxUnavailable))
	container := v1alpha1.SidecarContainer{Container: corev1.Container{Name: "side"}}
	if s.hot {
		container.UpgradeStrategy = v1alpha1.SidecarContainerUpgradeStrategy{UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: "empty:1"}
	}
	s.set.Spec.Containers = []v1alpha1.SidecarContainer{container}
	s.edit("side:v0")
	s.before = "side:v0"
	for i := range 4 + s.random.IntN(10) {
		s.pods = append(s.pods, s.newPod(fmt.Sprintf("p%02d", i)))
	}
	return s
}

func (s *simulation) edit(image string) {
	s.set.Generation++
	s.before = s.set.Spec.Containers[0].Image
	s.newVersion()
	s.set.Spec.Containers[0].Image = image
	fixture.Hashed(s.set)
}

// otherName returns another string for an image: an alias, the digest, or another tag of the image.
func (s *simulation) otherName(image string) string {
	tag := tagOf(image)
	switch s.random.IntN(4) {
	case 0:
		return "side:" + tag
	case 1:
		return "docker.io/library/side:" + tag
	case 2:
		return "side:" + tag + "@" + s.digest(tag)
	}
	other := fmt.Sprint("same", s.set.Generation)
	s.digests[other] = s.digest(tag)
	return "side:" + other
}

func tagOf(image string) string {
	name, _, _ := strings.Cut(image, "@")
	return name[strings.LastIndex(name, ":")+1:]
}

func (s *simulation) digest(tag string) string {
	if known, ok := s.digests[tag]; ok {
		return known
	}
	return "sha256:" + tag
}

// run writes an image into the status of a container. Like a container runtime, run uses one of several names
// of the image.
func (s *simulation) run(status *corev1.ContainerStatus, image string) {
	name, _, _ := strings.Cut(image, ":")
	name = "docker.io/library/" + strings.TrimPrefix(name, "docker.io/library/")
	status.Image, status.ImageID = name+":"+tagOf(image), name+"@"+s.digest(tagOf(image))
	if strings.Contains(image, "@") && s.random.IntN(2) == 0 {
		status.Image = status.ImageID
	}
}

func (s *simulation) newPod(name string) *simulated {
	p := &simulated{
		Pod:         &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(name), ResourceVersion: "1"}},
		skew:        []time.Duration{0, -time.Second, -5 * time.Second, 3 * time.Second}[s.random.IntN(4)],
		restartTime: time.Duration(s.random.IntN(3)) * 500 * time.Millisecond,
		readyTime:   []time.Duration{500 * time.Millisecond, 4 * time.Second}[s.random.IntN(2)],
		runs:        map[string]string{},
	}
	p.Labels = s.set.Spec.Selector.MatchLabels
	p.Annotations = map[string]string{
		v1alpha1.InjectedListAnnotation:     "s",
		v1alpha1.HashAnnotation:             fmt.Sprintf(`{"s":{"hash":%q}}`, s.set.Annotations[v1alpha1.HashAnnotation]),
		v1alpha1.HashWithoutImageAnnotation: fixture.HashEntry(s.set, v1alpha1.HashWithoutImageAnnotation),
	}
	images := [][2]string{{"app", "app:1"}, {"side", "side:v0"}}
	if s.hot {
		images = [][2]string{{"app", "app:1"}, {"side-1", "side:v0"}, {"side-2", "empty:1"}}
		p.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation] = `{"side":"side-1"}`
		p.Annotations[v1alpha1.VersionAnnotationPrefix+"side-1"] = "1"
		p.Annotations[v1alpha1.VersionAnnotationPrefix+"side-2"] = "0"
	}
	for _, image := range images {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: image[0], Image: image[1]})
	}
	if s.random.IntN(6) == 0 {
		p.Status.Phase = corev1.PodPending
		return p
	}
	p.scheduled, p.Status.Phase = true, corev1.PodRunning
	for _, image := range images {
		status := corev1.ContainerStatus{Name: image[0], Ready: true}
		s.run(&status, image[1])
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
		p.runs[image[0]] = image[1]
	}
	p.setReady(s.now, s.random.IntN(4) > 0)
	p.crashed = !p.ready()
	return p
}

// schedule assigns the pod to a kubelet, which starts the containers of the current spec.
func (p *simulated) schedule(s *simulation) {
	pod := p.DeepCopy()
	p.scheduled, p.Pod, pod.Status.Phase = true, pod, corev1.PodRunning
	pod.Status.StartTime = new(metav1.NewTime(s.now.Add(p.skew).Truncate(time.Second)))
	for _, c := range pod.Spec.Containers {
		status := corev1.ContainerStatus{Name: c.Name}
		if tagOf(c.Image) == tagOf(bad) {
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
		} else {
			s.run(&status, c.Image)
		}
		p.runs[c.Name] = c.Image
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
	}
	p.setReady(s.now, false)
	p.readyAt = s.now.Add(p.readyTime)
}

func (p *simulated) ready() bool {
	return len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionTrue
}

// setReady writes the condition Ready as a kubelet does: by the clock of the kubelet, in whole seconds, and
// only if the status changes.
func (p *simulated) setReady(now time.Time, ready bool) {
	if len(p.Status.Conditions) > 0 && p.ready() == ready {
		return
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(p.skew).Truncate(time.Second)),
	}}
}

// tick simulates half a second of the kubelet of a pod.
func (p *simulated) tick(s *simulation) {
	if !p.scheduled {
		if s.random.IntN(20) == 0 {
			p.schedule(s)
		}
		return
	}
	pod := p.DeepCopy()
	asked := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Image != p.runs[c.Name] })
	switch {
	case !asked:
		p.busy = time.Time{}
	case p.busy.IsZero():
		p.busy = s.now.Add(p.restartTime)
	case !s.now.Before(p.busy):
		p.busy = time.Time{}
		p.restart(s, pod)
		p.readyAt = s.now.Add(p.readyTime)
	}
	waiting := slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Waiting != nil })
	serves := !waiting && !s.now.Before(p.readyAt)
	if serves {
		p.crashed = p.broken
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		started := status.State.Waiting == nil && !s.now.Before(p.readyAt)
		status.Ready = (status.Ready || started) && (status.Name != "app" || !p.crashed)
	}
	p.Pod = pod
	p.setReady(s.now, serves && !p.crashed)
	if serves && p.converged() {
		p.unavailable = false
	}
}

// restart starts each container whose image in the spec has changed. A container with a bad image waits with
// ImagePullBackOff instead.
func (p *simulated) restart(s *simulation, pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		c, status := &pod.Spec.Containers[i], &pod.Status.ContainerStatuses[i]
		if c.Image == p.runs[c.Name] {
			continue
		}
		p.runs[c.Name], status.Ready = c.Image, false
		if tagOf(c.Image) == tagOf(bad) {
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
			continue
		}
		status.State.Waiting = nil
		s.run(status, c.Image)
		status.RestartCount++
	}
}

// converged reports whether the pod is consistent and ready.
func (p *simulated) converged() bool { return p.consistent() && p.ready() }

func (p *simulated) consistent() bool {
	for i := range p.Spec.Containers {
		if p.runs[p.Spec.Containers[i].Name] != p.Spec.Containers[i].Image {
			return false
		}
	}
	return true
}

// write applies a patch, as the API server does.
func (s *simulation) write(p *simulated, patch []byte) {
	document, err := json.Marshal(p.Pod)
	require.NoError(s.t, err)
	patched, err := strategicpatch.StrategicMergePatch(document, patch, corev1.Pod{})
	require.NoError(s.t, err)
	written := &corev1.Pod{}
	require.NoError(s.t, json.Unmarshal(patched, written))
	written.ResourceVersion += "1"
	p.Pod = written
}

func (s *simulation) population() []rollout.Pod {
	pods := make([]*corev1.Pod, 0, len(s.pods))
	for _, p := range s.pods {
		pods = append(pods, p.Pod)
	}
	population, err := rollout.Population(s.set, pods, nil)
	require.NoError(s.t, err)
	return population
}

// upgrade simulates a batch. upgrade does not continue a batch of an older generation.
func (s *simulation) upgrade() {
	plan, err := rollout.Next(s.set, s.population(), nil)
	require.NoError(s.t, err)
	if s.planned != s.set.Generation || len(s.left) == 0 || s.random.IntN(8) == 0 {
		s.left, s.planned = slices.Concat(plan.Pods, plan.Queued), s.set.Generation
		return // The cluster may change before the batch is written.
	}
	refill := plan.Refill(s.left, nil, 0)
	s.left = refill.Left
	version, err := podstate.NewVersion(s.set)
	require.NoError(s.t, err)
	before := s.unavailablePods()
	for _, chosen := range refill.Now {
		p := s.pods[slices.IndexFunc(s.pods, func(p *simulated) bool { return p.Name == chosen.Name })]
		target := upgrade.Target{Version: version, Revision: "r", SetVersion: s.set.ResourceVersion}
		patch, err := upgrade.Patch(p.Pod, target, metav1.NewTime(s.now))
		require.NoError(s.t, err)
		p.unavailable, p.upgraded = p.unavailable || p.ready(), true
		s.write(p, patch)
	}
	if unavailable := s.unavailablePods(); unavailable > before {
		require.LessOrEqual(s.t, unavailable, s.maxUnavailable, "more ready pods were upgraded than maxUnavailable allows")
	}
}

// reset empties standby twins, as ResetBatch does.
func (s *simulation) reset() {
	version, err := podstate.NewVersion(s.set)
	require.NoError(s.t, err)
	for _, p := range s.pods {
		state, err := version.Of(p.Pod)
		require.NoError(s.t, err)
		if state.Migrated {
			patch, err := upgrade.Reset(p.Pod, version, metav1.NewTime(s.now))
			require.NoError(s.t, err)
			s.write(p, patch)
		}
	}
}

// newest reports whether a pod runs the newest image and is converged. A pod with a broken app need not be
// ready.
func (s *simulation) newest(p *simulated) bool {
	return p.consistent() && (p.ready() || p.broken) && slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Image == s.set.Spec.Containers[0].Image })
}

func (s *simulation) unavailablePods() (n int) {
	for _, p := range s.pods {
		if p.unavailable {
			n++
		}
	}
	return n
}

// end ends the run of a rollout, and records the end as the operator does.
func (s *simulation) end() {
	population := s.population()
	version, err := podstate.NewVersion(s.set)
	require.NoError(s.t, err)
	plan, err := rollout.Next(s.set, population, nil)
	require.NoError(s.t, err)
	if plan.Ended() {
		s.runEnded = s.set.Generation
	}
	// The operator may be down between the end of the run and the write to status.
	if s.runEnded != s.set.Generation || s.random.IntN(3) == 0 || !rollout.EndToRecord(s.set, version, &plan, population) {
		return
	}
	good := v1alpha1.GoodRevision{Revision: "r", Hash: version.Hash, ResourceVersion: s.set.ResourceVersion}
	s.set.Status.GoodRevisions = rollout.WithGood(s.set.Status.GoodRevisions, good)
	s.newVersion()
	for i := range population {
		s.pods[i].upgraded = s.pods[i].upgraded && !population[i].Updated
	}
}

func (s *simulation) newVersion() {
	s.version++
	s.set.ResourceVersion = fmt.Sprint(s.version)
}

// crash crashes the app of a ready pod. If the rollout of the current version has ended, the app
// may never recover.
func (s *simulation) crash(p *simulated) {
	if p.ready() && !p.unavailable {
		p.broken = !p.upgraded && s.random.IntN(3) == 0
		p.crashed, p.readyAt = true, s.now.Add(6*time.Second)
		pod := p.DeepCopy()
		p.Pod = pod
		p.setReady(s.now, false)
	}
}

func (s *simulation) pass() {
	s.now = s.now.Add(500 * time.Millisecond)
	for _, p := range s.pods {
		p.tick(s)
	}
}

func TestSpec7_5_MaxUnavailableIsKeptWithSkewedClocksSlowPodsAndGenerationsInBetween(t *testing.T) {
	for seed := range uint64(150) {
		s := newSimulation(t, seed)
		for step := range 60 {
			if step%5 == 0 && s.random.IntN(2) == 0 {
				s.edit([]string{bad, fmt.Sprint("side:v", step), s.otherName(s.set.Spec.Containers[0].Image), s.before}[s.random.IntN(4)])
			}
			if s.random.IntN(6) == 0 {
				s.crash(s.pods[s.random.IntN(len(s.pods))])
			}
			s.upgrade()
			s.reset()
			s.end()
			s.pass()
		}
		// At the end, a working image reaches every pod.
		s.edit("side:last")
		for range 60 * len(s.pods) {
			if !slices.ContainsFunc(s.pods, func(p *simulated) bool { return !s.newest(p) }) {
				break
			}
			s.upgrade()
			s.reset()
			s.pass()
		}
		for _, p := range s.pods {
			require.True(t, s.newest(p), "seed %d: pod %s runs %v, ready %t", seed, p.Name, p.runs, p.ready())
		}
	}
}
