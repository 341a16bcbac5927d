package validation

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// DryRunPod is a pod with only the containers, init containers, volumes and pull secrets of a SidecarSet. If
// Kubernetes rejects the pod, the webhook rejects the SidecarSet (SPEC §5). The pod is untyped, so that it
// includes unknown fields.
type DryRunPod struct {
	// Spec is the pod's spec.
	Spec map[string]any
	// origins contains, for each container of the pod, the container of the SidecarSet from which the container
	// is built. The index is the same as in the pod.
	origins []origin
}

// origin identifies the container of a SidecarSet from which a container of the pod is built.
type origin struct {
	index int
	// standby is set for the twin with the empty image.
	standby bool
}

// NewDryRunPod builds the pod for the untyped spec of a SidecarSet. NewDryRunPod does not change the spec,
// and returns nil for a spec without containers and init containers.
func NewDryRunPod(spec map[string]any) *DryRunPod {
	containers, initContainers := objects(spec["containers"]), objects(spec["initContainers"])
	if len(containers)+len(initContainers) == 0 {
		return nil
	}
	pod := &DryRunPod{Spec: map[string]any{
		// Without this field, the API server would mount a token into each container.
		"automountServiceAccountToken": false,
	}}
	pod.addContainers(containers)
	var inits []any
	for _, c := range initContainers {
		inits = append(inits, coreContainer(c))
	}
	if len(containers) == 0 {
		pod.Spec["containers"] = []any{placeholder(initContainers)}
	}
	pod.set("initContainers", inits)
	pod.permit(slices.Concat(containers, initContainers))
	for _, list := range []string{"volumes", "imagePullSecrets"} {
		items, _ := spec[list].([]any)
		pod.set(list, items)
	}
	return pod
}

// permit sets the fields of the pod that Kubernetes requires for some containers. The matched pods of the cluster
// may also set these fields.
func (p *DryRunPod) permit(containers []map[string]any) {
	for _, container := range containers {
		context, _ := container["securityContext"].(map[string]any)
		windows, _ := context["windowsOptions"].(map[string]any)
		if context["procMount"] == string(corev1.UnmaskedProcMount) {
			p.Spec["hostUsers"] = false
		}
		if windows["hostProcess"] == true {
			p.Spec["hostNetwork"] = true
			p.Spec["securityContext"] = map[string]any{"windowsOptions": map[string]any{"hostProcess": true}}
			p.removeStandbyPorts()
		}
		p.permitSleep(container)
	}
}

// permitSleep raises the grace period of the pod to the longest sleep of a hook.
func (p *DryRunPod) permitSleep(container map[string]any) {
	const field, standard = "terminationGracePeriodSeconds", int64(corev1.DefaultTerminationGracePeriodSeconds)
	for _, hook := range []string{"preStop", "postStart"} {
		seconds, _, _ := unstructured.NestedInt64(container, "lifecycle", hook, "sleep", "seconds")
		if known, _ := p.Spec[field].(int64); seconds > max(known, standard) {
			p.Spec[field] = seconds
		}
	}
}

// removeStandbyPorts removes the ports of standby twins for a pod with hostNetwork (SPEC 4.8.4).
func (p *DryRunPod) removeStandbyPorts() {
	containers, _ := p.Spec["containers"].([]any)
	for i, of := range p.origins {
		if container, ok := containers[i].(map[string]any); ok && of.standby {
			delete(container, "ports")
		}
	}
}

func (p *DryRunPod) set(list string, items []any) {
	if len(items) > 0 {
		p.Spec[list] = items
	}
}

func (p *DryRunPod) addContainers(containers []map[string]any) {
	var all []any
	for i, c := range containers {
		upgrade, _, _ := unstructured.NestedStringMap(c, "upgradeStrategy")
		name, _ := c["name"].(string)
		if upgrade["upgradeType"] != string(v1alpha1.SidecarContainerHotUpgrade) {
			all = append(all, coreContainer(c))
			p.origins = append(p.origins, origin{index: i})
			continue
		}
		names := podstate.Twins(name)
		active, standby := coreContainer(c), coreContainer(c)
		active["name"], standby["name"] = names[0], names[1]
		standby["image"] = upgrade["hotUpgradeEmptyImage"]
		all = append(all, active, standby)
		p.origins = append(p.origins, origin{index: i}, origin{index: i, standby: true})
	}
	p.set("containers", all)
}

// coreContainer returns a sidecar without the fields of SidecarSets. If resourcesPolicy computes the
// resources, coreContainer also omits resources.
func coreContainer(sidecar map[string]any) map[string]any {
	core := map[string]any{}
	maps.Copy(core, sidecar)
	if sidecar["resourcesPolicy"] != nil {
		delete(core, "resources")
	}
	own := reflect.TypeFor[v1alpha1.SidecarContainer]()
	for i := range own.NumField() {
		if f := own.Field(i); !f.Anonymous {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			delete(core, name)
		}
	}
	return core
}

// placeholder returns an app container, because Kubernetes rejects a pod without containers.
func placeholder(initContainers []map[string]any) map[string]any {
	name := "app"
	for slices.ContainsFunc(initContainers, func(c map[string]any) bool { return c["name"] == name }) {
		name += "x"
	}
	return map[string]any{"name": name, "image": "app"}
}

func objects(list any) []map[string]any {
	items, _ := list.([]any)
	all := make([]map[string]any, len(items))
	for i := range items {
		all[i], _ = items[i].(map[string]any)
	}
	return all
}

var podField = regexp.MustCompile(`^spec\.(containers|initContainers|volumes|imagePullSecrets)\[(\d+)\](.*)$`)

// Causes converts causes about the pod to causes about the SidecarSet. Causes omits the causes about fields that
// known also contains, and duplicate causes about twins.
func (p *DryRunPod) Causes(ofPod, known []metav1.StatusCause) []metav1.StatusCause {
	reported := map[string]bool{}
	for _, cause := range known {
		reported[cause.Field] = true
	}
	var causes []metav1.StatusCause
	for _, cause := range ofPod {
		translated := p.translate(cause)
		if !reported[translated.Field] && !slices.Contains(causes, translated) {
			causes = append(causes, translated)
		}
	}
	return causes
}

func (p *DryRunPod) translate(cause metav1.StatusCause) metav1.StatusCause {
	elsewhere := metav1.StatusCause{Type: cause.Type, Field: "spec", Message: "in a pod with these containers and volumes: " + cause.Field + ": " + cause.Message}
	match := podField.FindStringSubmatch(cause.Field)
	if match == nil {
		return elsewhere
	}
	if match[1] != "containers" {
		return cause
	}
	index, err := strconv.Atoi(match[2])
	if err != nil || index >= len(p.origins) {
		return elsewhere
	}
	from, field := p.origins[index], match[3]
	if from.standby && field == ".image" {
		field = ".upgradeStrategy.hotUpgradeEmptyImage"
	}
	cause.Field = "spec.containers[" + strconv.Itoa(from.index) + "]" + field
	return cause
}
