package validation

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// Probe is a pod made of nothing but a SidecarSet's containers, init containers,
// volumes and pull secrets: what Kubernetes refuses in it, the set is refused
// for (SPEC §5). It is untyped, so that fields which this program does not know
// are asked about too.
type Probe struct {
	// PodSpec is the pod's spec.
	PodSpec map[string]any
	// origins tell for each container of the pod where it comes from.
	origins []origin
}

// origin is a container of a SidecarSet.
type origin struct {
	index int
	// idle marks the twin with the empty image.
	idle bool
}

// NewProbe builds the pod for the untyped spec of a SidecarSet, which is not
// changed. Nil means that there is nothing to ask about.
func NewProbe(spec map[string]any) *Probe {
	containers, initContainers := objects(spec["containers"]), objects(spec["initContainers"])
	if len(containers)+len(initContainers) == 0 {
		return nil
	}
	probe := &Probe{PodSpec: map[string]any{
		// A mounted token would be none of the set's.
		"automountServiceAccountToken": false,
	}}
	probe.addContainers(containers)
	var inits []any
	for _, c := range initContainers {
		inits = append(inits, coreContainer(c))
	}
	if len(containers) == 0 {
		probe.PodSpec["containers"] = []any{placeholder(initContainers)}
	}
	probe.set("initContainers", inits)
	for _, list := range []string{"volumes", "imagePullSecrets"} {
		items, _ := spec[list].([]any)
		probe.set(list, items)
	}
	return probe
}

func (p *Probe) set(list string, items []any) {
	if len(items) > 0 {
		p.PodSpec[list] = items
	}
}

func (p *Probe) addContainers(containers []map[string]any) {
	var all []any
	for i, c := range containers {
		upgrade, _, _ := unstructured.NestedStringMap(c, "upgradeStrategy")
		name, _ := c["name"].(string)
		if upgrade["upgradeType"] != string(v1alpha1.SidecarContainerHotUpgrade) {
			all = append(all, coreContainer(c))
			p.origins = append(p.origins, origin{index: i})
			continue
		}
		names := podstate.Sidecar{Name: name}.Twins()
		working, idle := coreContainer(c), coreContainer(c)
		working["name"], idle["name"] = names[0], names[1]
		idle["image"] = upgrade["hotUpgradeEmptyImage"]
		all = append(all, working, idle)
		p.origins = append(p.origins, origin{index: i}, origin{index: i, idle: true})
	}
	p.set("containers", all)
}

// coreContainer is a sidecar without the fields that injection uses up.
func coreContainer(sidecar map[string]any) map[string]any {
	core := map[string]any{}
	for name, value := range sidecar {
		core[name] = value
	}
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

// placeholder stands for the app, without which there is no pod.
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

// Causes turns what the API server said about the pod into what is wrong with
// the SidecarSet. Fields that are known to be wrong already, and twins that are
// wrong in the same way, are not named again.
func (p *Probe) Causes(ofPod, known []metav1.StatusCause) []metav1.StatusCause {
	said := map[string]bool{}
	for _, cause := range known {
		said[cause.Field] = true
	}
	var causes []metav1.StatusCause
	for _, cause := range ofPod {
		translated := p.translate(cause)
		if !said[translated.Field] && !slices.Contains(causes, translated) {
			causes = append(causes, translated)
		}
	}
	return causes
}

func (p *Probe) translate(cause metav1.StatusCause) metav1.StatusCause {
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
	if from.idle && field == ".image" {
		field = ".upgradeStrategy.hotUpgradeEmptyImage"
	}
	cause.Field = "spec.containers[" + strconv.Itoa(from.index) + "]" + field
	return cause
}
