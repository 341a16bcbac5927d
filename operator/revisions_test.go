package operator

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/revisions"
	"github.com/outrigger/outrigger/operator/runs"
)

func registrar(t *testing.T, stored ...client.Object) *revisionStep {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored...).
		WithIndex(&appsv1.ControllerRevision{}, revisions.SetField, revisions.SetNames).WithStatusSubresource(&v1alpha1.SidecarSet{}).Build()
	return &revisionStep{client: c, live: c, namespace: "system", recorder: &events.FakeRecorder{}}
}

func registered(t *testing.T, r *revisionStep, set *v1alpha1.SidecarSet) []*appsv1.ControllerRevision {
	t.Helper()
	require.NoError(t, client.IgnoreAlreadyExists(r.client.Create(t.Context(), set.DeepCopy())))
	require.NoError(t, r.reconcile(t.Context(), &pass{set: set}))
	all, err := r.revisionsOf(t.Context(), set)
	require.NoError(t, err)
	return all
}

// A quota of the system namespace rejects the newest revision, or an admission policy rejects changes of the other
// revisions.
func TestSpec6_10_ARejectedWriteOfARevision(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	r := registrar(t)
	recorder := events.NewFakeRecorder(9)
	r.recorder = recorder
	registered(t, r, set)
	former := set.Status.LatestRevision
	set.Spec.Containers[0].Image, set.Spec.RevisionHistoryLimit = "side:v2", new(int32(1))
	rejected := apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), "any", errors.New("exceeded quota"))
	accepted, ok := r.client.(client.WithWatch)
	require.True(t, ok)
	r.client = interceptor.NewClient(accepted, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return rejected },
	})
	require.ErrorIs(t, r.reconcile(t.Context(), &pass{set: set}), rejected)
	assert.Contains(t, <-recorder.Events, "Warning RevisionFailed create ControllerRevision system/s-")
	assert.Equal(t, former, set.Status.LatestRevision)

	r.client = interceptor.NewClient(accepted, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return rejected },
	})
	p := &pass{set: set}
	require.NoError(t, r.reconcile(t.Context(), p))
	require.ErrorIs(t, p.revisionsErr, rejected)
	assert.NotEqual(t, former, set.Status.LatestRevision)
	assert.Empty(t, recorder.Events)
}

func TestSpec6_ARevisionOfEitherFormIsNotRecordedAgain(t *testing.T) {
	for form, data := range map[string]string{
		"brief": `{"spec":{"containers":[{"name":"side","image":"side:v1","resources":{},"upgradeStrategy":{},"shareVolumePolicy":{}}]}}`,
		"whole": `{"spec":{"$patch":"replace","containers":[{"name":"side","image":"side:v1","resources":{},"upgradeStrategy":{},"shareVolumePolicy":{}}],
			"imagePullSecrets":null,"initContainers":null,"patchPodMetadata":null,"volumes":null}}`,
	} {
		set := fixture.SidecarSet("s")
		set.Spec.Containers = []v1alpha1.SidecarContainer{{}}
		set.Spec.Containers[0].Name, set.Spec.Containers[0].Image = "side", "side:v1"
		before, err := revision.New(set, "system", 1)
		require.NoError(t, err)
		before.Name, before.Data = "of-another-release", runtime.RawExtension{Raw: []byte(data)}
		all := registered(t, registrar(t, before), set)
		require.Len(t, all, 1, form)
		assert.Equal(t, "of-another-release", set.Status.LatestRevision, form)
		assert.Equal(t, int64(1), all[0].Revision, form)
	}
}

func TestARunNamesOnlyChangedImages(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("agent"), fixture.Sidecar("proxy"))
	r := registrar(t)
	images := func(change func(spec *v1alpha1.SidecarSetSpec)) string {
		change(&set.Spec)
		p := &pass{set: set}
		require.NoError(t, r.reconcile(t.Context(), p))
		return p.generation().Images
	}
	agent, proxy := "agent="+set.Spec.Containers[0].Image, "proxy="+set.Spec.Containers[1].Image
	assert.Equal(t, agent+", "+proxy, images(func(*v1alpha1.SidecarSetSpec) {}), "the first generation")
	assert.Equal(t, "proxy=proxy:v2", images(func(s *v1alpha1.SidecarSetSpec) { s.Containers[1].Image = "proxy:v2" }))
	assert.Equal(t, agent+", proxy=proxy:v2", images(func(s *v1alpha1.SidecarSetSpec) { s.Containers[0].Command = []string{"x"} }), "no image changed")
	set.Status.LatestRevision = "deleted"
	assert.Equal(t, agent+", proxy=proxy:v3", images(func(s *v1alpha1.SidecarSetSpec) { s.Containers[1].Image = "proxy:v3" }), "the former revision is not known")
}

// A revision whose content is superseded before its rollout keeps its change cause.
func TestSpec6_9_ARevisionHasTheChangeCauseOfItsContent(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	r := registrar(t)
	for image, cause := range map[string]string{"side:v1": "", "side:v2": "faster start", "side:v3": "CVE"} {
		set.Spec.Containers[0].Image = image
		set.Annotations = map[string]string{v1alpha1.ChangeCauseAnnotation: cause}
		registered(t, r, set)
	}
	set.Spec.Containers[0].Image = "side:v2"
	set.Annotations = nil
	causes := map[string]string{}
	for _, one := range registered(t, r, set) {
		var spec v1alpha1.SidecarSetSpec
		require.NoError(t, revision.Restore(one.Data.Raw, &spec))
		causes[spec.Containers[0].Image] = one.Annotations[v1alpha1.ChangeCauseAnnotation]
	}
	assert.Equal(t, map[string]string{"side:v1": "", "side:v2": "faster start", "side:v3": "CVE"}, causes)
}

func TestSpec6_APinnedVersionOutlivesRelabellingAndTheLimit(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	set.Labels = map[string]string{v1alpha1.CustomVersionLabel: "one"}
	set.Spec.RevisionHistoryLimit = new(int32(1))
	r := registrar(t)
	first := registered(t, r, set)[0].Name
	set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: new(""), CustomVersion: new("one")}
	for _, version := range []string{"two", "three"} {
		set.Labels[v1alpha1.CustomVersionLabel] = version
		registered(t, r, set)
	}
	for _, image := range []string{"side:v2", "side:v3"} {
		set.Spec.Containers[0].Image = image
		registered(t, r, set)
	}
	found, err := revision.FindPinned(set, registered(t, r, set))
	require.NoError(t, err)
	assert.Equal(t, first, found.Name)
	assert.True(t, revision.HasCustomVersion(found, "one"))
	assert.Len(t, registered(t, r, set), 2, "the pinned one and the newest")
}

func TestSpec6_6_TheLastGoodRevisionOutlivesTheLimit(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	set.Spec.RevisionHistoryLimit = new(int32(1))
	r := registrar(t)
	good := registered(t, r, set)[0].Name
	adopted := v1alpha1.GoodRevision{Revision: "adopted", Hash: "h"}
	set.Status.GoodRevisions = []v1alpha1.GoodRevision{adopted, {Revision: good, Hash: "h", ResourceVersion: "7"}}
	namesAfter := func(image string) []string {
		set.Spec.Containers[0].Image = image
		var names []string
		for _, one := range registered(t, r, set) {
			names = append(names, one.Name)
		}
		return names
	}
	for _, image := range []string{"side:v2", "side:v3"} {
		names := namesAfter(image)
		assert.ElementsMatch(t, []string{good, set.Status.LatestRevision}, names, image)
	}
	set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Revision: set.Status.LatestRevision, Hash: "h", ResourceVersion: "9"}}
	assert.Equal(t, []string{set.Status.LatestRevision}, namesAfter("side:v3"), "the former good revision is removed")
}

// A user pins a revision while the operator reconciles an outdated copy of the SidecarSet.
func TestSpec6_6_NoRevisionIsDeletedForAnOldSidecarSet(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	set.Spec.RevisionHistoryLimit = new(int32(1))
	r := registrar(t)
	registered(t, r, set)
	live := &v1alpha1.SidecarSet{}
	require.NoError(t, r.client.Get(t.Context(), client.ObjectKeyFromObject(set), live))
	live.Generation = 2
	require.NoError(t, r.client.Update(t.Context(), live))
	set.Spec.Containers[0].Image = "side:v2"
	assert.Len(t, registered(t, r, set), 2)
	set.Generation = 2
	assert.Len(t, registered(t, r, set), 1)
}

// The watch of revisions was interrupted, so the cache missed a revision.
func TestSpec7_9_ARevisionThatTheCacheMissedIsComparedLater(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	r := registrar(t)
	require.NoError(t, r.client.Create(t.Context(), set))
	r.status = &statusWriter{reported: &reports{}, client: r.client, writes: prometheus.NewCounter(prometheus.CounterOpts{})}
	var all []*appsv1.ControllerRevision
	for i, amount := range []string{"64Mi", "80Mi", "96Mi"} {
		set.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(amount)}
		one, err := revision.New(fixture.Hashed(set), "system", int64(i+1))
		require.NoError(t, err)
		all = append(all, one)
	}
	set.Status.LatestRevision = all[2].Name
	for _, cached := range [][]*appsv1.ControllerRevision{{all[0], all[2]}, all} {
		require.NoError(t, r.recordResizableHashes(t.Context(), &pass{set: set, before: set.DeepCopy()}, cached))
		assert.Len(t, set.Status.ResizableHashes, len(cached))
	}
}

func (e *testEnv) testRevisions(t *testing.T) {
	numbers := func(c require.TestingT) map[string]int64 {
		found := map[string]int64{}
		for _, r := range e.revisions(c, "first") {
			found[r.Name] = r.Revision
		}
		return found
	}
	v1 := e.await(t, "first", isStarted).Status.LatestRevision
	e.change(t, "first", setImage("proxy:v2"))
	v2 := e.await(t, "first", isStarted).Status.LatestRevision
	assert.Equal(t, map[string]int64{v1: 1, v2: 2}, numbers(t))

	e.change(t, "first", func(set *v1alpha1.SidecarSet) { set.Spec.UpdateStrategy.Partition = new(intstr.FromString("50%")) })
	e.await(t, "first", isStarted)
	assert.Equal(t, map[string]int64{v1: 1, v2: 2}, numbers(t), "same content, no new revision")

	e.change(t, "first", func(set *v1alpha1.SidecarSet) {
		setImage("proxy:v1")(set)
		set.Labels = map[string]string{v1alpha1.CustomVersionLabel: "stable"}
	})
	set := e.await(t, "first", isStarted)
	assert.Equal(t, v1, set.Status.LatestRevision)
	assert.Equal(t, map[string]int64{v1: 3, v2: 2}, numbers(t), "old content gets a new number")
	newest := e.revisions(t, "first")[1]
	assert.Equal(t, "stable", newest.Labels[v1alpha1.CustomVersionLabel])
	e.awaitRun(t, set.Status.Rollout.WorkflowID, func(c *assert.CollectT, found *runs.Run) { assert.Equal(c, int64(4), found.Generation) })
	assert.Equal(t, 4.0, e.metric(t, `outrigger_rollout_starts_total{result="ok"}`), "every generation is started once")

	require.NoError(t, e.Delete(t.Context(), newest))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, map[string]int64{v1: 3, v2: 2}, numbers(c))
	}, soon, tick, "a deleted revision comes back")

	e.change(t, "first", func(set *v1alpha1.SidecarSet) { set.Spec.RevisionHistoryLimit = new(int32(1)) })
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, map[string]int64{v1: 3}, numbers(c))
	}, soon, tick, "revisions past the limit go")
}

func (e *testEnv) testCollision(t *testing.T) {
	set := newSet(t, "colliding", "proxy:v1")
	name, err := revision.Name(set)
	require.NoError(t, err)
	require.NoError(t, e.Create(t.Context(), &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.SystemNamespace, Name: name}, Revision: 1,
		Data: runtime.RawExtension{Raw: []byte("{}")},
	}))
	require.NoError(t, e.Create(t.Context(), set))
	got := e.await(t, "colliding", isStarted)
	assert.Equal(t, new(int32(1)), got.Status.CollisionCount)
	next, err := revision.Name(got)
	require.NoError(t, err)
	assert.Equal(t, next, got.Status.LatestRevision)
	assert.NotEqual(t, name, next)
}
