package watches

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/reference"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/upgrade"
	"github.com/outrigger/outrigger/kube/watches/podtest"
)

// decisions contains the results of all decisions about a list of pods.
type decisions struct {
	population   []podstate.State
	plan, refill string
	chosen       int
	pods         []podDecisions
	illnesses    []rollout.Illness
}

type podDecisions struct {
	active         bool
	sets           []string
	patch, reset   string
	resize         string
	resizeWait     string
	condition      corev1.PodCondition
	changed        bool
	errs           []error
	startFailures  []string
	eventReference corev1.ObjectReference
}

func decide(t *testing.T, set *v1alpha1.SidecarSet, pods []*corev1.Pod) (made decisions) {
	t.Helper()
	population, err := rollout.Population(set, pods, nil)
	require.NoError(t, err)
	for i := range population {
		made.population = append(made.population, population[i].State)
	}
	made.illnesses = illnesses(t, set, pods)
	plan, err := rollout.Next(set, population, nil)
	require.NoError(t, err)
	made.chosen = len(plan.Pods)
	made.refill = encoded(t, plan.Refill(slices.Concat(plan.Pods, plan.Queued), nil, 1))
	made.plan = encoded(t, plan)
	for _, pod := range pods {
		about, err := reference.GetReference(scheme.Scheme, pod)
		require.NoError(t, err)
		one := decideOne(t, set, pod)
		one.eventReference = *about
		made.pods = append(made.pods, one)
	}
	return made
}

// illnesses returns the illness of each pod. The first observation of each pod has no restarts.
func illnesses(t *testing.T, set *v1alpha1.SidecarSet, pods []*corev1.Pod) (all []rollout.Illness) {
	t.Helper()
	before := make([]*corev1.Pod, len(pods))
	for i := range pods {
		before[i] = pods[i].DeepCopy()
		for j := range before[i].Status.ContainerStatuses {
			before[i].Status.ContainerStatuses[j].RestartCount = 0
		}
	}
	var health rollout.Health
	step, now := &protocol.Step{AppRestarts: 1}, time.Unix(1_800_000_000, 0)
	for _, observed := range [][]*corev1.Pod{before, pods} {
		population, err := rollout.Population(set, observed, nil)
		require.NoError(t, err)
		health.Observe(set.Name, "h", population, step, now)
		all = nil
		for i := range population {
			all = append(all, population[i].Unhealthy)
		}
	}
	return all
}

func encoded(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

func decideOne(t *testing.T, set *v1alpha1.SidecarSet, pod *corev1.Pod) podDecisions {
	t.Helper()
	now := metav1.Unix(1_800_000_000, 0)
	version, err := podstate.NewVersion(set)
	require.NoError(t, err)
	state, errState := version.Of(pod)
	target := upgrade.Target{Version: version, Revision: "r", SetVersion: "100", Metadata: set.Spec.PatchPodMetadata}
	patch, errPatch := upgrade.Patch(pod, target, now)
	reset, errReset := upgrade.Reset(pod, version, now)
	resize, errResize := upgrade.Resize(pod, target)
	made := podDecisions{
		active: match.Active(pod), sets: record.InjectedSets(pod.Annotations),
		patch: string(patch), reset: string(reset), resize: string(resize.Begin) + string(resize.Resize), errs: []error{errState, errPatch, errReset, errResize},
		resizeWait: version.ResizeWait(pod) + version.ResizeObstacle(pod),
	}
	made.condition, made.changed = podstate.UpgradableCondition(pod, set.Name, state, now)
	for _, native := range []bool{false, true} {
		for _, name := range []string{"side", "hot-1", "hot-2", "native"} {
			status := podstate.Status(pod, name, native)
			if reason, failed := podstate.Stopped(status); failed {
				made.startFailures = append(made.startFailures, reason+" "+status.Image)
			}
		}
	}
	return made
}

// Each field of the random pods has a value. Therefore, the test fails if a decision reads a field that the
// transform drops.
func TestDecisionsAboutCachedAndWholePodsAreEqual(t *testing.T) {
	transform := NewPodTransform()
	matched, planned := 0, 0
	for seed := range int64(250) {
		drawn := podtest.New(seed)
		set := drawn.Set()
		whole, cached := make([]*corev1.Pod, 12), make([]*corev1.Pod, 12)
		for i := range whole {
			whole[i] = drawn.Pod()
			kept, err := transform(whole[i].DeepCopy())
			require.NoError(t, err)
			cached[i] = kept.(*corev1.Pod)
		}
		want := decide(t, set, whole)
		require.Equal(t, want, decide(t, set, cached), "seed %d", seed)
		planned += want.chosen
		matched += len(want.population)
	}
	assert.Greater(t, planned, 50)
	assert.Greater(t, matched, 500)
}

func TestACachedPodTellsWhetherItIsCritical(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem}, Spec: corev1.PodSpec{PriorityClassName: "system-node-critical"}}
	require.True(t, match.Critical(pod))
	stripped, err := NewPodTransform()(pod)
	require.NoError(t, err)
	assert.True(t, match.Critical(stripped.(*corev1.Pod)))
}

// spec.os is optional, and the cache drops the node selector. The transform therefore sets spec.os.
func TestACachedPodTellsWhetherItIsOfWindows(t *testing.T) {
	for name, windows := range map[string]bool{"windows": true, "linux": false} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelOSStable: name}}}
		assert.Equal(t, windows, podstate.Windows(pod), name)
		stripped, err := NewPodTransform()(pod)
		require.NoError(t, err)
		assert.Equal(t, windows, podstate.Windows(stripped.(*corev1.Pod)), name)
	}
}

func TestAPodThatIsStrippedTwiceStaysTheSame(t *testing.T) {
	transform := NewPodTransform()
	pod := podtest.New(1).Pod()
	once, err := transform(pod)
	require.NoError(t, err)
	require.Same(t, pod, once, "the watch and the cache share one object")
	before := pod.DeepCopy()
	_, err = transform(pod)
	require.NoError(t, err)
	require.Equal(t, before, pod)
	_, err = transform(&corev1.Node{})
	require.EqualError(t, err, "the pod cache gets a *v1.Node")
}

func TestEveryRoleCachesStrippedPodsAndNamespaces(t *testing.T) {
	stripped := 0
	for object, by := range (&Watches{}).CacheOptions("system").ByObject {
		switch object.(type) {
		case *corev1.Pod:
			kept, err := by.Transform(realistic(1))
			require.NoError(t, err)
			require.Empty(t, kept.(*corev1.Pod).Spec.Volumes)
			stripped++
		case *corev1.Namespace:
			kept, err := by.Transform(&corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}})
			require.NoError(t, err)
			require.Empty(t, kept.(*corev1.Namespace).Spec)
			stripped++
		}
	}
	require.Equal(t, 2, stripped)
}

func TestPodsOfOneWorkloadShareLabelsAndContainers(t *testing.T) {
	shared := newStringPool()
	labels := shared.labels(map[string]string{"a": "1", "b": "2"})
	again := shared.labels(map[string]string{"b": "2", "a": "1"})
	again["c"] = "3"
	require.Len(t, labels, 3, "one map")
	require.Equal(t, map[string]string{"a": "2", "b": "1"}, shared.labels(map[string]string{"a": "2", "b": "1"}))
	containers := []corev1.Container{{Name: "a", Image: "i"}, {Name: "b", Image: "j"}}
	require.Same(t, &shared.containers(containers)[0], &shared.containers(containers)[0])
	require.NotEqual(t, shared.containers(containers), shared.containers(containers[:1]))
	for i := range 3 * poolLimit {
		shared.text(fmt.Sprint(i))
		shared.labels(map[string]string{"a": fmt.Sprint(i)})
		shared.containers([]corev1.Container{{Name: fmt.Sprint(i)}})
	}
	require.LessOrEqual(t, len(shared.texts), poolLimit)
	require.LessOrEqual(t, len(shared.labelMaps), poolLimit)
	require.LessOrEqual(t, len(shared.containerSets), poolLimit)
}

func TestPodsOfOneSecondShareTheirRecord(t *testing.T) {
	shared := newStringPool()
	record := func() map[string]string {
		return map[string]string{v1alpha1.HashAnnotation: strings.Clone(`{"logs":{"hash":"1"}}`), "long": strings.Repeat("x", maxPooledLength+1)}
	}
	first, second := shared.annotations(record()), shared.annotations(record())
	require.Equal(t, record(), first)
	require.Same(t, unsafe.StringData(first[v1alpha1.HashAnnotation]), unsafe.StringData(second[v1alpha1.HashAnnotation]))
	require.NotSame(t, unsafe.StringData(first["long"]), unsafe.StringData(second["long"]), "what is remembered takes bounded memory")
	second["own"] = "1"
	require.NotContains(t, first, "own", "each pod has a map of its own")
}

func TestOfANamespaceTheLabelsAreCached(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "n", UID: "u", ResourceVersion: "1", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"fat": "x"},
	}}
	kept, err := namespaceTransform(namespace)
	require.NoError(t, err)
	require.Equal(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1", Labels: map[string]string{"a": "b"}}}, kept)
}

// BenchmarkPodCache prints the heap of a pod without managedFields, and of a cached pod. Pods are
// decoded from the format of the API server.
func BenchmarkPodCache(b *testing.B) {
	whole := func(o any) (any, error) {
		o.(*corev1.Pod).ManagedFields = nil
		return o, nil
	}
	for name, transform := range map[string]func(any) (any, error){"whole": whole, "cached": NewPodTransform()} {
		b.Run(name, func(b *testing.B) {
			const pods = 10_000
			for b.Loop() {
				before := heap()
				held := make([]*corev1.Pod, pods)
				for i := range held {
					held[i] = received(b, i)
					if _, err := transform(held[i]); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(heap()-before)/pods, "B/pod")
				runtime.KeepAlive(held)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// received returns a pod of one of a hundred Deployments, after encoding and decoding.
func received(b *testing.B, number int) *corev1.Pod {
	b.Helper()
	encoded, err := realistic(number).Marshal()
	if err != nil {
		b.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(encoded); err != nil {
		b.Fatal(err)
	}
	return pod
}

func realistic(number int) *corev1.Pod {
	at := metav1.NewTime(time.Unix(1_700_000_000+int64(number), 0))
	app := fmt.Sprintf("shop-%d", number/100)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: fmt.Sprintf("%s-7d4b9c6f5b-%05d", app, number), GenerateName: app + "-7d4b9c6f5b-",
		UID: types.UID(fmt.Sprintf("0e6b0f5a-3c1b-4ab0-9d5b-%012d", number)), ResourceVersion: fmt.Sprint(1_000_000 + number), CreationTimestamp: at,
		Labels: map[string]string{"app": "web", "pod-template-hash": "7d4b9c6f5b"},
		Annotations: map[string]string{
			v1alpha1.InjectedListAnnotation:     "logs",
			v1alpha1.HashAnnotation:             entry(at, `,"controllerRevision":"logs-6b7d8f9c5d"`),
			v1alpha1.HashWithoutImageAnnotation: entry(at, ""),
			v1alpha1.InPlaceUpdateStateAnnotation: `{"logs":{"revision":"4w2x8z5c7v9b4w2x8z5c7v9b","updateTimestamp":"` + at.UTC().Format(time.RFC3339) +
				`","lastContainerStatuses":{"logs":{"imageID":"` + digest(1) + `","restartCount":0}}}}`,
			"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "checksum/config": strings.Repeat("c0ffee", 10),
		},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app + "-7d4b9c6f5b", UID: "8c1d2f0a-77aa-4be1-93e1-000000000001", Controller: new(true)}},
	}}
	for i := range 8 {
		pod.Labels[fmt.Sprintf("app.kubernetes.io/label-%d", i)] = fmt.Sprintf("%s-value-%d", app, i)
	}
	for i := range 3 {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: "kubelet", Operation: "Update", APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", Subresource: "status",
			FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:metadata":{"f:labels":{}}}`, 40+i)),
		})
	}
	spec := &pod.Spec
	spec.NodeName, spec.ServiceAccountName, spec.RestartPolicy = fmt.Sprintf("node-%d", number%200), "default", corev1.RestartPolicyAlways
	spec.SchedulerName, spec.DNSPolicy, spec.Priority = "default-scheduler", corev1.DNSClusterFirst, new(int32(0))
	for _, name := range []string{"config", "data", "kube-api-access-x7k2p"} {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: app + name}, DefaultMode: new(int32(420)),
		}}})
	}
	spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(300))}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.1.0.1", PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}}, StartTime: &at, QOSClass: "Burstable"}
	for _, kind := range []corev1.PodConditionType{"PodReadyToStartContainers", corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	for i, name := range []string{"web", "metrics", "logs"} {
		spec.Containers = append(spec.Containers, realisticContainer(name))
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Image: "registry.example.com/team/" + name + ":v1.2.3", ImageID: digest(i), ContainerID: fmt.Sprintf("containerd://%064d", number),
			Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		})
	}
	return pod
}

func entry(at metav1.Time, more string) string {
	return `{"logs":{"updateTimestamp":"` + at.UTC().Format(time.RFC3339) + `","hash":"4w2x8z5c7v9b4w2x8z5c7v9b","sidecarSetName":"logs","sidecarList":["logs"]` + more + `}}`
}

func digest(n int) string { return fmt.Sprintf("registry.example.com/team/app@sha256:%064d", n) }

func realisticContainer(name string) corev1.Container {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}, PeriodSeconds: 10}
	container := corev1.Container{
		Name: name, Image: "registry.example.com/team/" + name + ":v1.2.3", Args: []string{"--config=/etc/config.yaml", "--verbose"},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}, LivenessProbe: probe, ReadinessProbe: probe,
		Resources:       corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}},
		SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(true)},
		VolumeMounts:    []corev1.VolumeMount{{Name: "config", MountPath: "/etc/config"}, {Name: "data", MountPath: "/data"}, {Name: "kube-api-access-x7k2p", MountPath: "/var/run/secrets"}},
	}
	for i := range 10 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: strings.Repeat("v", 20)})
	}
	return container
}
