package podtest

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

// Pods creates random pods with a value in every field, and a SidecarSet that is injected into most of these
// pods. The fields that decisions read have few possible values, so that pods often differ in only one field.
type Pods struct {
	filler *randfill.Filler
	drawn  int
	// hash and blank are the hashes of the latest SidecarSet.
	hash, blank string
}

// New returns a generator. Equal seeds create equal objects.
func New(seed int64) *Pods {
	p := &Pods{hash: "hash-drawn", blank: "blank-drawn"}
	p.filler = randfill.NewWithSeed(seed).NilChance(0).NumElements(1, 2).MaxDepth(8).Funcs(
		func(at *metav1.Time, c randfill.Continue) { *at = second(int64(c.Uint64() % 3)) },
	)
	return p
}

// Set returns a SidecarSet with a cold sidecar, and in some cases a hot and a native sidecar.
func (p *Pods) Set() *v1alpha1.SidecarSet {
	hot := fixture.Sidecar("hot", func(c *v1alpha1.SidecarContainer) {
		c.UpgradeStrategy.UpgradeType, c.UpgradeStrategy.HotUpgradeEmptyImage = v1alpha1.SidecarContainerHotUpgrade, "empty:v1"
	})
	set := fixture.SidecarSet("drawn", fixture.Sidecar("side"))
	set.Spec.Containers[0].Resources.Limits = p.amounts()
	if p.one(2) {
		set.Spec.Containers = append(set.Spec.Containers, hot)
	}
	if p.one(2) {
		native := fixture.Sidecar("native")
		native.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		set.Spec.InitContainers = []v1alpha1.SidecarContainer{native}
	}
	fixture.Hashed(set)
	p.hash, p.blank = set.Annotations[v1alpha1.HashAnnotation], set.Annotations[v1alpha1.HashWithoutImageAnnotation]
	if p.one(2) {
		set.Status.ResizableHashes = []string{p.blank, "older"}
	}
	set.Generation, set.UID, set.ResourceVersion = 2, "set", "100"
	set.Spec.PatchPodMetadata = []v1alpha1.SidecarSetPatchPodMetadata{{
		Annotations: map[string]string{"theirs": `{"b":2}`},
		PatchPolicy: v1alpha1.SidecarSetPatchPolicyType(p.pick("Retain", "Overwrite", "MergePatchJson")),
	}}
	strategy := &set.Spec.UpdateStrategy
	strategy.Type, strategy.MaxUnavailable = v1alpha1.RollingUpdateSidecarSetStrategyType, new(intstr.FromInt32(int32(p.below(4))))
	switch p.below(4) {
	case 0:
		strategy.ScatterStrategy = v1alpha1.UpdateScatterStrategy{{Key: "zone", Value: "*"}}
	case 1:
		strategy.PriorityStrategy = &v1alpha1.UpdatePriorityStrategy{OrderPriority: []v1alpha1.UpdatePriorityOrderTerm{{OrderedKey: "zone"}}}
	case 2:
		strategy.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "z-1"}}
	}
	return set
}

// Pod returns a random pod with a unique name and uid.
func (p *Pods) Pod() *corev1.Pod {
	pod := &corev1.Pod{}
	p.filler.Fill(pod)
	p.drawn++
	// Decoders leave TypeMeta empty.
	pod.TypeMeta = metav1.TypeMeta{}
	pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion = p.pick("a", "b"), "p-"+strconv.Itoa(p.drawn), types.UID(strconv.Itoa(p.drawn)), strconv.Itoa(1000+p.drawn)
	pod.Labels["app"], pod.Labels["zone"] = "web", p.pick("z-1", "z-2", "z-3")
	p.annotate(pod)
	if !p.one(10) {
		pod.DeletionTimestamp = nil
	}
	if p.one(3) {
		pod.Spec.NodeName = ""
	}
	pod.Spec.RestartPolicy = corev1.RestartPolicy(p.pick("Always", "OnFailure", "Never"))
	if p.one(3) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job", Controller: new(true)}}
	}
	pod.Spec.Containers = append(pod.Spec.Containers, p.containers("side", "hot-1", "hot-2")...)
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, p.containers("native", "ends")...)
	pod.Spec.InitContainers[len(pod.Spec.InitContainers)-2].RestartPolicy = new(corev1.ContainerRestartPolicy(p.pick("Always", "Always", "Always", "OnFailure")))
	status := &pod.Status
	if p.one(2) {
		pod.Spec.Resources = nil
	}
	if pod.Spec.ReadinessGates = nil; p.one(3) {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "gate"}}
	}
	if pod.Spec.OS = nil; p.one(5) {
		pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	}
	status.QOSClass, status.ObservedGeneration = corev1.PodQOSClass(p.pick("", "Burstable")), int64(p.below(3))
	pod.Generation = int64(1 + p.below(2))
	status.Phase = corev1.PodPhase(p.pick("Running", "Running", "Running", "Pending", "Unknown", "Failed"))
	status.Conditions = append(status.Conditions, p.conditions()...)
	status.ContainerStatuses, status.InitContainerStatuses = p.statuses(pod.Spec.Containers), p.statuses(pod.Spec.InitContainers)
	return pod
}

func (p *Pods) annotate(pod *corev1.Pod) {
	hash, blank := p.pick(p.hash, "older"), p.pick(p.blank, p.blank, p.blank, "older")
	for key, value := range map[string]string{
		v1alpha1.InjectedListAnnotation:               p.pick("drawn", "drawn", "drawn,other", "other"),
		v1alpha1.HashAnnotation:                       `{"drawn":{"hash":"` + hash + `"}}`,
		v1alpha1.HashWithoutImageAnnotation:           `{"drawn":{"hash":"` + blank + `"}}`,
		v1alpha1.WorkingHotUpgradeContainerAnnotation: `{"hot":"` + p.pick("hot-1", "hot-2") + `"}`,
		v1alpha1.VersionAnnotationPrefix + "hot-1":    p.pick("0", "7"),
		v1alpha1.VersionAnnotationPrefix + "hot-2":    p.pick("0", "8"),
		"theirs": `{"a":` + p.pick("1", "2") + `}`,
	} {
		pod.Annotations[key] = value
	}
	if p.one(2) {
		pod.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = fmt.Sprintf(
			`{"drawn":{"revision":%q,"updateTimestamp":%q,"lastContainerStatuses":{%q:{"imageID":%q%s}}}}`, hash,
			p.time().UTC().Format(time.RFC3339), p.pick("side", "hot-1", "native"), p.pick("", "id-1", "id-2"), p.pick("", `,"restartCount":1`, `,"restartCount":1,"image":"side:v1","startFailure":"ImagePullBackOff"`, `,"restartCount":0,"startFailure":"Terminated"`))
	}
	if p.one(3) {
		pod.Annotations[v1alpha1.UnavailableSinceAnnotation] = `{"drawn":"` + p.time().UTC().Format(time.RFC3339) + `"}`
	}
	if p.one(3) {
		pod.Annotations[v1alpha1.ResizeAnnotation] = `{"drawn":"` + p.pick(hash, p.hash) + `"}`
	}
	if p.one(10) {
		pod.Annotations[corev1.MirrorPodAnnotationKey] = "m"
	}
}

func (p *Pods) containers(names ...string) []corev1.Container {
	drawn := make([]corev1.Container, len(names))
	for i, name := range names {
		p.filler.Fill(&drawn[i])
		drawn[i].Resources = corev1.ResourceRequirements{Requests: p.amounts(), Limits: p.amounts()}
		if p.one(2) {
			drawn[i].ResizePolicy = nil
		} else {
			drawn[i].ResizePolicy[0] = corev1.ContainerResizePolicy{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}
		}
		drawn[i].Name, drawn[i].Image = name, p.pick("side:v1", "side:v2", "hot:v1", "empty:v1", "side@sha256:aa")
		if !p.one(3) {
			drawn[i].Env[0] = corev1.EnvVar{Name: v1alpha1.InjectedEnv, Value: p.pick("true", "true", "false")}
		}
	}
	return drawn
}

func (p *Pods) statuses(of []corev1.Container) []corev1.ContainerStatus {
	drawn := make([]corev1.ContainerStatus, len(of))
	for i := range of {
		status := &drawn[i]
		p.filler.Fill(status)
		switch {
		case p.one(4):
			status.Resources = nil
		case p.one(2):
			status.Resources = of[i].Resources.DeepCopy()
		}
		status.Name, status.Image = of[i].Name, p.pick(of[i].Image, "side:v1", "side:v2")
		status.ImageID, status.RestartCount = p.pick("", "id-1", "id-2", "side@sha256:aa"), int32(p.below(2))
		if status.Ready = !p.one(4); status.Ready || p.one(2) {
			status.State.Waiting = nil
		} else {
			status.State.Waiting.Reason = p.pick("ContainerCreating", "ErrImagePull", "CrashLoopBackOff")
			status.State.Waiting.Message = p.pick("", `failed to pull image "side:v1": not found`, `failed to pull image "side:v2": not found`, "pull QPS exceeded")
		}
		if p.one(2) {
			status.State.Running = nil
		}
		if status.State.Waiting != nil || status.State.Running != nil || p.one(2) {
			status.State.Terminated = nil
		}
	}
	return drawn
}

func (p *Pods) conditions() []corev1.PodCondition {
	drawn := make([]corev1.PodCondition, 5)
	for i, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, "gate", v1alpha1.UpgradableCondition, corev1.PodResizePending} {
		p.filler.Fill(&drawn[i])
		drawn[i].Type, drawn[i].Status = kind, corev1.ConditionStatus(p.pick("True", "True", "False"))
		drawn[i].Message = p.pick(`{"drawn":false}`, `{"drawn":true,"other":false}`, `{"other":true}`)
	}
	return drawn[:1+p.below(5)]
}

func (p *Pods) amounts() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(p.pick("1", "2")), corev1.ResourceMemory: resource.MustParse(p.pick("1Gi", "2Gi"))}
}

func (p *Pods) time() metav1.Time { return second(int64(p.below(3))) }

func second(n int64) metav1.Time { return metav1.Unix(1_700_000_000+n, 0) }

func (p *Pods) below(n int) int {
	var drawn uint32
	p.filler.Fill(&drawn)
	return int(drawn) % n
}

// one returns true in one of n cases.
func (p *Pods) one(n int) bool { return p.below(n) == 0 }

func (p *Pods) pick(values ...string) string { return values[p.below(len(values))] }
