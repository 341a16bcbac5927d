package activities

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/eviction"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube/watches"
)

// plannedCluster returns an evictingCluster whose cache contains pods.
func plannedCluster(t *testing.T, pods []*corev1.Pod, others ...client.Object) (*Activities, protocol.EvictPodsInput) {
	t.Helper()
	informer, index := newPodInformer(t)
	for _, pod := range pods {
		require.NoError(t, informer.GetIndexer().Add(pod))
	}
	a, _, input := evictingCluster(t, others...)
	a.Index = index
	return a, input
}

func planEvictions(t *testing.T, a *Activities, state protocol.EvictionState) protocol.EvictionPlan {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(a.PlanEvictions)
	answer, err := env.ExecuteActivity(a.PlanEvictions, protocol.PlanEvictionsInput{Policy: protocol.PolicyReference{Name: "edge", UID: "p1"}, State: state, Now: noon})
	require.NoError(t, err)
	var plan protocol.EvictionPlan
	require.NoError(t, answer.Get(&plan))
	return plan
}

// ownedPod returns a pod of the Deployment web. The pod is not upgradable.
func ownedPod(name string) *corev1.Pod {
	return webPod(name, func(pod *corev1.Pod) {
		pod.Namespace = "shop"
		pod.Annotations[v1alpha1.HashWithoutImageAnnotation] = `{"logs":{"hash":"other"}}`
		pod.Labels["pod-template-hash"] = "5d"
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d", UID: "r1", Controller: new(true)}}
	})
}

func TestSpec13_2_APlanChoosesAPodOfADeployment(t *testing.T) {
	a, _ := plannedCluster(t, []*corev1.Pod{ownedPod("web-1"), ownedPod("web-2")})
	plan := planEvictions(t, a, protocol.EvictionState{})
	assert.Equal(t, 2, plan.Remaining, plan.Message)
	require.Len(t, plan.Evict, 1, plan.Message)
	assert.Equal(t, protocol.Owner{Namespace: "shop", Kind: "Deployment", Name: "web"}, plan.Evict[0].Owner)
	assert.Equal(t, "logs", plan.Evict[0].SidecarSet.Name)
	assert.Len(t, plan.Evict[0].Pods, 1)
	assert.Equal(t, protocol.Controller{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d"}, plan.Evict[0].Controller)
}

// The cache may contain the pods of a namespace without the namespace.
func TestSpec13_3_ASidecarSetThatCannotBeReadKeepsItsFailures(t *testing.T) {
	a, input := plannedCluster(t, []*corev1.Pod{ownedPod("web-1")})
	server := a.Live.(client.Client)
	set := &v1alpha1.SidecarSet{}
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Name: "logs"}, set))
	set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "edge"}}
	require.NoError(t, server.Update(t.Context(), set))
	require.NoError(t, server.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}))
	failed := outriggerv1.FailedEviction{SidecarSet: "logs", SidecarSetUID: input.Evictions[0].SidecarSet.UID, Generation: 2, Namespace: "shop", Kind: "Deployment", Name: "web", Reason: "no new pod"}
	plan := planEvictions(t, a, protocol.EvictionState{PolicyGeneration: 3, Since: noon.Add(-time.Hour), Failed: []outriggerv1.FailedEviction{failed}})
	assert.Contains(t, plan.Message, "the pods of SidecarSet logs are not known: ")
	assert.Len(t, plan.State.Failed, 1)
	assert.Equal(t, noon.Add(-time.Hour), plan.State.Since)
	assert.Empty(t, plan.Evict)
}

// The namespace of one pod was removed without the pod. The SidecarSet selects no namespaces, so the plan
// reads the namespace only to decide whether the API server calls the webhook.
func TestSpec13_2_ANamespaceThatIsMissingStopsNoOtherEviction(t *testing.T) {
	gone := ownedPod("web-0")
	gone.Namespace, gone.UID = "gone", "gone"
	a, _ := plannedCluster(t, []*corev1.Pod{gone, ownedPod("web-1")})
	plan := planEvictions(t, a, protocol.EvictionState{})
	require.Len(t, plan.Evict, 1, plan.Message)
	assert.Equal(t, "shop", plan.Evict[0].Owner.Namespace)
	assert.Contains(t, plan.Message, "namespace gone")
}

func TestSpec13_3_ThePlanReadsTheReplicasOfALateOwner(t *testing.T) {
	deployment := func(replicas int32) client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
	}
	// The owner of the ReplicaSets of an Argo Rollout is not a Deployment.
	replicaSet := func(replicas int32) client.Object {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-5d"}, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
	}
	apps, kruise := "apps/v1", "apps.kruise.io/v1alpha1"
	unselected := ownedPod("web-3")
	unselected.Labels["app"] = "other"
	for name, c := range map[string]struct {
		apiVersion string
		stored     []client.Object
		failed     int
	}{
		"scaled down":                 {apps, []client.Object{deployment(2)}, 0},
		"not scaled down":             {apps, []client.Object{deployment(3)}, 1},
		"without a Deployment":        {apps, []client.Object{replicaSet(3)}, 1},
		"scaled without a Deployment": {apps, []client.Object{replicaSet(2)}, 0},
		"deleted":                     {apps, nil, 0},
		"a workload of another API":   {kruise, nil, 1},
		"its namesake in another API": {kruise, []client.Object{deployment(1)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a, input := plannedCluster(t, []*corev1.Pod{ownedPod("web-2"), unselected}, c.stored...)
			e := input.Evictions[0]
			e.Owner, e.Controller = protocol.Owner{Namespace: "shop", Kind: "Deployment", Name: "web"}, protocol.Controller{APIVersion: c.apiVersion, Kind: "ReplicaSet", Name: "web-5d"}
			e.Others, e.Newest, e.Since = 1, noon, noon.Add(-11*time.Minute)
			plan := planEvictions(t, a, protocol.EvictionState{PolicyGeneration: 3, InFlight: []protocol.Eviction{e}})
			assert.Len(t, plan.State.Failed, c.failed)
		})
	}
}

func TestSpec13_5_APolicyThatIsGoneEndsTheRun(t *testing.T) {
	a, _, _ := evictingCluster(t)
	require.NoError(t, a.Live.(client.Client).Delete(t.Context(), &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}))
	assert.True(t, planEvictions(t, a, protocol.EvictionState{}).Ended)

	a, _, _ = evictingCluster(t)
	a.Current = func() error { return errors.New("the cache is behind") }
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(a.PlanEvictions)
	_, err := env.ExecuteActivity(a.PlanEvictions, protocol.PlanEvictionsInput{})
	require.ErrorContains(t, err, "the cache is behind")
}

// The cache of pods drops fields that are not needed for decisions, and must keep the API of the owner.
func TestSpec13_3_ACachedPodHasTheAPIOfItsOwner(t *testing.T) {
	cached, err := watches.NewPodTransform()(ownedPod("web-1"))
	require.NoError(t, err)
	a, _ := plannedCluster(t, []*corev1.Pod{cached.(*corev1.Pod)})
	plan := planEvictions(t, a, protocol.EvictionState{})
	require.Len(t, plan.Evict, 1, plan.Message)
	assert.Equal(t, protocol.Controller{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d"}, plan.Evict[0].Controller)
}

// A migrating pod serves requests, so the plan counts the pod as ready.
func TestSpec13_2_AMigratingPodCountsAsReady(t *testing.T) {
	scan := &evictionScan{Activities: &Activities{}, pods: map[types.UID]*eviction.Pod{}}
	migrating := hotPod("a", migratingYet)
	migrating.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	version, err := podstate.NewVersion(hotSet())
	require.NoError(t, err)
	state, err := version.Of(migrating)
	require.NoError(t, err)
	require.False(t, state.Ready)
	scan.add(migrating, "logs", true)
	assert.True(t, scan.pods[migrating.UID].Ready)
}

// Until all pods are upgraded, new pods may get the previous revision, so the replacements would also be
// outdated.
func TestSpec13_1_PodsAreEvictedOnlyForContentThatNewPodsGet(t *testing.T) {
	a, _, _ := evictingCluster(t)
	set := webSet(1)
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 2, Stage: &v1alpha1.RolloutStage{Step: 1, Steps: 2, UpTo: new(intstr.FromString("10%"))}}
	webhook := &admissionregistrationv1.MutatingWebhook{Rules: make([]admissionregistrationv1.RuleWithOperations, 1)}
	reason := func() string {
		found, err := a.notEvictable(set, webhook, nil, nil)
		require.NoError(t, err)
		return found
	}
	assert.Empty(t, reason(), "no rollout has ended before")
	set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Revision: "logs-1", Hash: "former", ResourceVersion: "1"}}
	assert.Equal(t, "new pods of SidecarSet logs do not get its newest content yet", reason())
	for _, noPodWaits := range []string{v1alpha1.ReasonNotUpgradablePods, v1alpha1.ReasonRolloutComplete} {
		set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: noPodWaits, ObservedGeneration: 2}}
		assert.Empty(t, reason(), noPodWaits)
	}
	set.Status.Conditions, set.Status.Rollout.Stage.UpTo = nil, new(intstr.FromString("100%"))
	assert.Empty(t, reason(), "the last step gives the content to all new pods")
}

// While a user replaces the webhook configuration, the pods wait. The pods may be evicted later, so the
// deadline of evictions continues.
func TestSpec13_4_SidecarSetsWaitWhileTheWebhookIsNotRegistered(t *testing.T) {
	a, _, _ := evictingCluster(t)
	for name, installed := range map[string]*admissionregistrationv1.MutatingWebhook{"missing": nil, "without rules": {}} {
		scan := &evictionScan{Activities: a, installed: installed}
		waits, err := scan.waits(webSet(1), &rollout.Plan{Phase: protocol.PhaseComplete})
		require.NoError(t, err)
		assert.Equal(t, notCalled, waits, name)
		scan.pods = map[types.UID]*eviction.Pod{"w1": {Pod: livePod(), Outdated: []string{"logs"}}}
		scan.markNotCalled(nil)
		assert.Empty(t, scan.pods["w1"].Waits, "the SidecarSet waits, and not the pod: %s", name)
	}
}
