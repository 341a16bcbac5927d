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

// fleet is what production makes of a rollout: real pods with what is really
// written into them, kubelets that need time and whose clocks are off, apps that
// crash by themselves, and new generations in the middle.
type fleet struct {
	// runEnded is the newest generation whose run has ended by itself.
	runEnded int64
	t        *testing.T
	random   *rand.Rand
	now      time.Time
	set      *v1alpha1.SidecarSet
	window   int
	hot      bool
	pods     []*simulated
	left     []protocol.SelectedPod
	// before is the image of the generation before.
	before string
	// digests of images, by tag.
	digests map[string]string
	// version is the set's resourceVersion.
	version int
	// generation that left was planned for.
	planned int64
}

// simulated is a pod, its kubelet, and an observer that knows nothing of what
// is recorded.
type simulated struct {
	*corev1.Pod
	skew, restartTime, readyTime time.Duration
	// runs is what each container runs; busy when that changes, readyAt when the
	// pod is ready again, and crashed that its app is down until then.
	runs    map[string]string
	busy    time.Time
	readyAt time.Time
	crashed bool
	// broken pods have an app that never comes up again, and scheduled ones a node.
	broken, scheduled bool
	// moved pods were upgraded by a rollout that has not ended.
	moved bool
	// taken pods served when their sidecar was changed, and have not been in
	// order since.
	taken bool
}

const bad = "side:bad"

func newFleet(t *testing.T, seed uint64) *fleet {
	f := &fleet{t: t, random: rand.New(rand.NewPCG(seed, 2)), now: time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC), hot: seed%3 == 0, digests: map[string]string{}}
	f.window = 1 + f.random.IntN(4)
	f.set = &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "u"}}
	f.set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	f.set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt(f.window))
	container := v1alpha1.SidecarContainer{Container: corev1.Container{Name: "side"}}
	if f.hot {
		container.UpgradeStrategy = v1alpha1.SidecarContainerUpgradeStrategy{UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: "empty:1"}
	}
	f.set.Spec.Containers = []v1alpha1.SidecarContainer{container}
	f.edit("side:v0")
	f.before = "side:v0"
	for i := range 4 + f.random.IntN(10) {
		f.pods = append(f.pods, f.newPod(fmt.Sprintf("p%02d", i)))
	}
	return f
}

func (f *fleet) edit(image string) {
	f.set.Generation++
	f.before = f.set.Spec.Containers[0].Image
	f.newVersion()
	f.set.Spec.Containers[0].Image = image
	fixture.Hashed(f.set)
}

// otherName is another string for an image: an alias, its digest, or another tag of it.
func (f *fleet) otherName(image string) string {
	tag := tagOf(image)
	switch f.random.IntN(4) {
	case 0:
		return "side:" + tag
	case 1:
		return "docker.io/library/side:" + tag
	case 2:
		return "side:" + tag + "@" + f.digest(tag)
	}
	other := fmt.Sprint("same", f.set.Generation)
	f.digests[other] = f.digest(tag)
	return "side:" + other
}

func tagOf(image string) string {
	name, _, _ := strings.Cut(image, "@")
	return name[strings.LastIndex(name, ":")+1:]
}

func (f *fleet) digest(tag string) string {
	if known, ok := f.digests[tag]; ok {
		return known
	}
	return "sha256:" + tag
}

// run reports an image as runtimes do: by one of its names, whatever it was asked for.
func (f *fleet) run(status *corev1.ContainerStatus, image string) {
	name, _, _ := strings.Cut(image, ":")
	name = "docker.io/library/" + strings.TrimPrefix(name, "docker.io/library/")
	status.Image, status.ImageID = name+":"+tagOf(image), name+"@"+f.digest(tagOf(image))
	if strings.Contains(image, "@") && f.random.IntN(2) == 0 {
		status.Image = status.ImageID
	}
}

func (f *fleet) newPod(name string) *simulated {
	p := &simulated{
		Pod:         &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(name), ResourceVersion: "1"}},
		skew:        []time.Duration{0, -time.Second, -5 * time.Second, 3 * time.Second}[f.random.IntN(4)],
		restartTime: time.Duration(f.random.IntN(3)) * 500 * time.Millisecond,
		readyTime:   []time.Duration{500 * time.Millisecond, 4 * time.Second}[f.random.IntN(2)],
		runs:        map[string]string{},
	}
	p.Labels = f.set.Spec.Selector.MatchLabels
	p.Annotations = map[string]string{
		v1alpha1.InjectedListAnnotation:     "s",
		v1alpha1.HashAnnotation:             fmt.Sprintf(`{"s":{"hash":%q}}`, f.set.Annotations[v1alpha1.HashAnnotation]),
		v1alpha1.HashWithoutImageAnnotation: fixture.HashEntry(f.set, v1alpha1.HashWithoutImageAnnotation),
	}
	images := [][2]string{{"app", "app:1"}, {"side", "side:v0"}}
	if f.hot {
		images = [][2]string{{"app", "app:1"}, {"side-1", "side:v0"}, {"side-2", "empty:1"}}
		p.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation] = `{"side":"side-1"}`
		p.Annotations[v1alpha1.VersionAnnotationPrefix+"side-1"] = "1"
		p.Annotations[v1alpha1.VersionAnnotationPrefix+"side-2"] = "0"
	}
	for _, image := range images {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: image[0], Image: image[1]})
	}
	if f.random.IntN(6) == 0 {
		p.Status.Phase = corev1.PodPending
		return p
	}
	p.scheduled, p.Status.Phase = true, corev1.PodRunning
	for _, image := range images {
		status := corev1.ContainerStatus{Name: image[0], Ready: true}
		f.run(&status, image[1])
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
		p.runs[image[0]] = image[1]
	}
	p.setReady(f.now, f.random.IntN(4) > 0)
	p.crashed = !p.ready()
	return p
}

// schedule has a kubelet take a pod on, and start what the pod asks for by then.
func (p *simulated) schedule(f *fleet) {
	pod := p.DeepCopy()
	p.scheduled, p.Pod, pod.Status.Phase = true, pod, corev1.PodRunning
	pod.Status.StartTime = new(metav1.NewTime(f.now.Add(p.skew).Truncate(time.Second)))
	for _, c := range pod.Spec.Containers {
		status := corev1.ContainerStatus{Name: c.Name}
		if tagOf(c.Image) == tagOf(bad) {
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
		} else {
			f.run(&status, c.Image)
		}
		p.runs[c.Name] = c.Image
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
	}
	p.setReady(f.now, false)
	p.readyAt = f.now.Add(p.readyTime)
}

func (p *simulated) ready() bool {
	return len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionTrue
}

// setReady writes the condition as a kubelet does: by its own clock, in whole
// seconds, and with a new time only when it changes.
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

// tick lets half a second pass on a node.
func (p *simulated) tick(f *fleet) {
	if !p.scheduled {
		if f.random.IntN(20) == 0 {
			p.schedule(f)
		}
		return
	}
	pod := p.DeepCopy()
	asked := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Image != p.runs[c.Name] })
	switch {
	case !asked:
		p.busy = time.Time{}
	case p.busy.IsZero():
		p.busy = f.now.Add(p.restartTime)
	case !f.now.Before(p.busy):
		p.busy = time.Time{}
		p.restart(f, pod)
		p.readyAt = f.now.Add(p.readyTime)
	}
	waiting := slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Waiting != nil })
	serves := !waiting && !f.now.Before(p.readyAt)
	if serves {
		p.crashed = p.broken
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		started := status.State.Waiting == nil && !f.now.Before(p.readyAt)
		status.Ready = (status.Ready || started) && (status.Name != "app" || !p.crashed)
	}
	p.Pod = pod
	p.setReady(f.now, serves && !p.crashed)
	if serves && p.inOrder() {
		p.taken = false
	}
}

// restart runs what the containers are asked to, or fails to.
func (p *simulated) restart(f *fleet, pod *corev1.Pod) {
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
		f.run(status, c.Image)
		status.RestartCount++
	}
}

// inOrder pods run what they are asked to, and serve.
func (p *simulated) inOrder() bool { return p.runsWhatItAsks() && p.ready() }

func (p *simulated) runsWhatItAsks() bool {
	for i := range p.Spec.Containers {
		if p.runs[p.Spec.Containers[i].Name] != p.Spec.Containers[i].Image {
			return false
		}
	}
	return true
}

// write applies a patch, as the API server does.
func (f *fleet) write(p *simulated, patch []byte) {
	document, err := json.Marshal(p.Pod)
	require.NoError(f.t, err)
	patched, err := strategicpatch.StrategicMergePatch(document, patch, corev1.Pod{})
	require.NoError(f.t, err)
	written := &corev1.Pod{}
	require.NoError(f.t, json.Unmarshal(patched, written))
	written.ResourceVersion += "1"
	p.Pod = written
}

func (f *fleet) population() []rollout.Pod {
	pods := make([]*corev1.Pod, 0, len(f.pods))
	for _, p := range f.pods {
		pods = append(pods, p.Pod)
	}
	population, err := rollout.Population(f.set, pods, nil)
	require.NoError(f.t, err)
	return population
}

// upgrade does what a batch does: one made for an older generation ends.
func (f *fleet) upgrade() {
	plan, err := rollout.Next(f.set, f.population(), nil)
	require.NoError(f.t, err)
	if f.planned != f.set.Generation || len(f.left) == 0 || f.random.IntN(8) == 0 {
		f.left, f.planned = slices.Concat(plan.Pods, plan.Queued), f.set.Generation
		return // by the time that it is written, the cluster has moved on
	}
	refill := plan.Refill(f.left, nil, 0)
	f.left = refill.Left
	version, err := podstate.NewVersion(f.set)
	require.NoError(f.t, err)
	before := f.takenPods()
	for _, chosen := range refill.Now {
		p := f.pods[slices.IndexFunc(f.pods, func(p *simulated) bool { return p.Name == chosen.Name })]
		target := upgrade.Target{Version: version, Revision: "r", SetVersion: f.set.ResourceVersion}
		patch, err := upgrade.Patch(p.Pod, target, metav1.NewTime(f.now))
		require.NoError(f.t, err)
		p.taken, p.moved = p.taken || p.ready(), true
		f.write(p, patch)
	}
	if taken := f.takenPods(); taken > before {
		require.LessOrEqual(f.t, taken, f.window, "pods that served were taken beyond the window")
	}
}

// reset empties standby twins, as ResetBatch does.
func (f *fleet) reset() {
	version, err := podstate.NewVersion(f.set)
	require.NoError(f.t, err)
	for _, p := range f.pods {
		state, err := version.Of(p.Pod)
		require.NoError(f.t, err)
		if state.Migrated {
			patch, err := upgrade.Reset(p.Pod, version, metav1.NewTime(f.now))
			require.NoError(f.t, err)
			f.write(p, patch)
		}
	}
}

// newest pods run the set's newest image, and are in order unless their app is broken.
func (f *fleet) newest(p *simulated) bool {
	return p.runsWhatItAsks() && (p.ready() || p.broken) && slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Image == f.set.Spec.Containers[0].Image })
}

func (f *fleet) takenPods() (n int) {
	for _, p := range f.pods {
		if p.taken {
			n++
		}
	}
	return n
}

// end ends the run of a rollout, and records that as the operator does.
func (f *fleet) end() {
	population := f.population()
	version, err := podstate.NewVersion(f.set)
	require.NoError(f.t, err)
	plan, err := rollout.Next(f.set, population, nil)
	require.NoError(f.t, err)
	if plan.Ended() {
		f.runEnded = f.set.Generation
	}
	// The operator may be down between the end of the run and the record.
	if f.runEnded != f.set.Generation || f.random.IntN(3) == 0 || !rollout.EndToRecord(f.set, version, &plan, population) {
		return
	}
	good := v1alpha1.GoodRevision{Revision: "r", Hash: version.Hash, ResourceVersion: f.set.ResourceVersion}
	f.set.Status.GoodRevisions = rollout.WithGood(f.set.Status.GoodRevisions, good)
	f.newVersion()
	for i := range population {
		f.pods[i].moved = f.pods[i].moved && !population[i].Updated
	}
}

func (f *fleet) newVersion() {
	f.version++
	f.set.ResourceVersion = fmt.Sprint(f.version)
}

// crash has the app of a pod that serves fail: for a while or, if the rollout of what the
// pod holds has ended, for ever.
func (f *fleet) crash(p *simulated) {
	if p.ready() && !p.taken {
		p.broken = !p.moved && f.random.IntN(3) == 0
		p.crashed, p.readyAt = true, f.now.Add(6*time.Second)
		pod := p.DeepCopy()
		p.Pod = pod
		p.setReady(f.now, false)
	}
}

func (f *fleet) pass() {
	f.now = f.now.Add(500 * time.Millisecond)
	for _, p := range f.pods {
		p.tick(f)
	}
}

func TestSpec7_5_MaxUnavailableIsKeptWithSkewedClocksSlowPodsAndGenerationsInBetween(t *testing.T) {
	for seed := range uint64(150) {
		f := newFleet(t, seed)
		for step := range 60 {
			if step%5 == 0 && f.random.IntN(2) == 0 {
				f.edit([]string{bad, fmt.Sprint("side:v", step), f.otherName(f.set.Spec.Containers[0].Image), f.before}[f.random.IntN(4)])
			}
			if f.random.IntN(6) == 0 {
				f.crash(f.pods[f.random.IntN(len(f.pods))])
			}
			f.upgrade()
			f.reset()
			f.end()
			f.pass()
		}
		// A good image in the end reaches every pod, whatever came before.
		f.edit("side:last")
		for range 60 * len(f.pods) {
			if !slices.ContainsFunc(f.pods, func(p *simulated) bool { return !f.newest(p) }) {
				break
			}
			f.upgrade()
			f.reset()
			f.pass()
		}
		for _, p := range f.pods {
			require.True(t, f.newest(p), "seed %d: pod %s runs %v, ready %t", seed, p.Name, p.runs, p.ready())
		}
	}
}
