package conformance

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/validation"
)

// cluster simulates the API server of a case. cluster contains the stored objects, and calls the functions of
// the admission.
type cluster struct {
	t          *testing.T
	sets       []v1alpha1.SidecarSet
	namespaces map[string]map[string]string
	whitelist  string
	// revisions contains the revisions that were registered so far, in the order of their first use.
	revisions []appsv1.ControllerRevision
}

type step struct {
	Namespace  *metav1.ObjectMeta
	ConfigMap  *struct{ Data map[string]string }
	SidecarSet json.RawMessage
	Patch      *struct {
		Name string
		Body json.RawMessage
	}
	Pod json.RawMessage
}

func replay(t *testing.T, file string) []answer {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var recorded struct{ Steps []step }
	require.NoError(t, yaml.Unmarshal(raw, &recorded))
	c := &cluster{t: t, namespaces: map[string]map[string]string{"default": {}}}
	var answers []answer
	for _, s := range recorded.Steps {
		switch {
		case s.Namespace != nil:
			c.namespaces[s.Namespace.Name] = s.Namespace.Labels
		case s.ConfigMap != nil:
			c.whitelist = s.ConfigMap.Data[v1alpha1.MetadataWhitelistKey]
		case s.SidecarSet != nil:
			answers = append(answers, c.write(s.SidecarSet, nil))
		case s.Patch != nil:
			answers = append(answers, c.patch(s.Patch.Name, s.Patch.Body))
		case s.Pod != nil:
			answers = append(answers, c.createPod(s.Pod))
		}
	}
	return c.renamed(answers)
}

func (c *cluster) find(name string) *v1alpha1.SidecarSet {
	index := slices.IndexFunc(c.sets, func(s v1alpha1.SidecarSet) bool { return s.Name == name })
	require.GreaterOrEqual(c.t, index, 0)
	return &c.sets[index]
}

func (c *cluster) patch(name string, body []byte) answer {
	stored := c.find(name)
	if len(c.revisions) > 0 {
		body = bytes.ReplaceAll(body, []byte("$REV1"), []byte(c.revisions[0].Name))
	}
	before, err := json.Marshal(stored)
	require.NoError(c.t, err)
	after, err := jsonpatch.MergePatch(before, body)
	require.NoError(c.t, err)
	return c.write(after, stored)
}

func (c *cluster) write(raw []byte, old *v1alpha1.SidecarSet) answer {
	var set v1alpha1.SidecarSet
	require.NoError(c.t, json.Unmarshal(raw, &set))
	require.NoError(c.t, revision.Complete(&set, old))
	if rejected := c.reject(&set, old); len(rejected) > 0 {
		return rejection(rejected)
	}
	built, err := revision.New(&set, "kruise-system", int64(len(c.revisions)))
	require.NoError(c.t, err)
	if !slices.ContainsFunc(c.revisions, func(r appsv1.ControllerRevision) bool { return r.Name == built.Name }) {
		c.revisions = append(c.revisions, *built)
	}
	if old != nil {
		*old = set
	} else {
		c.sets = append(c.sets, set)
	}
	return answer{"allowed": true, "revision": built.Name, "sidecarSet": map[string]any{
		"annotations": plain(c.t, set.Annotations), "labels": labelsOf(c.t, set.Labels), "spec": plain(c.t, set.Spec),
	}}
}

func (c *cluster) reject(set, old *v1alpha1.SidecarSet) []metav1.StatusCause {
	whitelist, err := validation.ParseWhitelist(c.whitelist)
	require.NoError(c.t, err)
	ratchet := validation.NewRatchet(set, old)
	if ratchet.NeedsOthers() {
		ratchet.Conflicts(c.sets, c.revisions)
	}
	if ratchet.NeedsWhitelist() {
		ratchet.Metadata(whitelist)
	}
	if ratchet.NeedsRevisions() {
		ratchet.Pinned(c.revisions)
	}
	return ratchet.Rejected()
}

// rejection returns the fields of the errors of a rejected SidecarSet.
func rejection(causes []metav1.StatusCause) answer {
	fields := []any{}
	for _, cause := range causes {
		fields = append(fields, cause.Field)
	}
	return answer{"allowed": false, "for": fields}
}

func (c *cluster) createPod(raw []byte) answer {
	var pod corev1.Pod
	require.NoError(c.t, json.Unmarshal(raw, &pod))
	if pod.Namespace == "" {
		pod.Namespace = "default"
	}
	asStored(&pod)
	injected, err := c.inject(&pod)
	if err != nil {
		return answer{"allowed": false, "for": err.Error()}
	}
	again, err := c.inject(injected)
	require.NoError(c.t, err)
	require.Equal(c.t, c.stripped(injected), c.stripped(again), "another webhook may have injected the same before")
	return answer{"allowed": true, "pod": c.stripped(injected)}
}

func (c *cluster) inject(pod *corev1.Pod) (*corev1.Pod, error) {
	injection, err := inject.Pod(pod, c.matching(pod), metav1.NewTime(time.Unix(0, 0)))
	if err != nil {
		return nil, err
	}
	operations, err := json.Marshal(injection.Patch())
	require.NoError(c.t, err)
	before, err := json.Marshal(pod)
	require.NoError(c.t, err)
	patch, err := jsonpatch.DecodePatch(operations)
	require.NoError(c.t, err)
	after, err := patch.Apply(before)
	require.NoError(c.t, err)
	injected := &corev1.Pod{}
	require.NoError(c.t, json.Unmarshal(after, injected))
	asStored(injected)
	return injected, nil
}

func (c *cluster) matching(pod *corev1.Pod) []*inject.Set {
	var matching []*inject.Set
	for i := range c.sets {
		set := &c.sets[i]
		scope, err := match.NewScope(&set.Spec)
		require.NoError(c.t, err)
		if !scope.Labels(pod.Labels) || !scope.Namespace(pod.Namespace, c.namespaces[pod.Namespace]) {
			continue
		}
		matching = append(matching, c.prepared(set, pod))
	}
	return matching
}

func (c *cluster) prepared(set *v1alpha1.SidecarSet, pod *corev1.Pod) *inject.Set {
	usesPinned, err := inject.UsesPinned(set, pod, "request")
	require.NoError(c.t, err)
	if !usesPinned {
		name, err := revision.Name(set)
		require.NoError(c.t, err)
		prepared, err := inject.Prepare(set, name)
		require.NoError(c.t, err)
		return prepared
	}
	found, err := revision.FindPinned(set, revision.Of(set, c.revisions))
	require.NoError(c.t, err)
	prepared, err := inject.PreparePinned(set, found)
	require.NoError(c.t, err)
	return prepared
}

// asStored writes the defaults that the API server writes into a pod. Containers and volumes have the same
// defaults as in a SidecarSet, except for some probes.
func asStored(pod *corev1.Pod) {
	var set v1alpha1.SidecarSet
	for _, container := range pod.Spec.InitContainers {
		set.Spec.InitContainers = append(set.Spec.InitContainers, v1alpha1.SidecarContainer{Container: container})
	}
	for _, container := range pod.Spec.Containers {
		set.Spec.Containers = append(set.Spec.Containers, v1alpha1.SidecarContainer{Container: container})
	}
	set.Spec.Volumes = pod.Spec.Volumes
	defaults.Write(&set)
	set.Spec.Containers, set.Spec.InitContainers = defaults.PodProbes(set.Spec.Containers), defaults.PodProbes(set.Spec.InitContainers)
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i] = requesting(set.Spec.InitContainers[i].Container)
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i] = requesting(set.Spec.Containers[i].Container)
	}
}

func requesting(container corev1.Container) corev1.Container {
	for name, limit := range container.Resources.Limits {
		if container.Resources.Requests == nil {
			container.Resources.Requests = corev1.ResourceList{}
		}
		if _, found := container.Resources.Requests[name]; !found {
			container.Resources.Requests[name] = limit
		}
	}
	return container
}

// stripped returns only the fields of a pod that the recorded results contain.
func (c *cluster) stripped(pod *corev1.Pod) map[string]any {
	annotations := map[string]any{}
	for key, value := range pod.Annotations {
		annotations[key] = value
		switch key {
		case v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation:
			var entries map[string]map[string]any
			require.NoError(c.t, json.Unmarshal([]byte(value), &entries))
			for _, entry := range entries {
				delete(entry, "updateTimestamp")
			}
			annotations[key] = plain(c.t, entries)
		case v1alpha1.WorkingHotUpgradeContainerAnnotation:
			annotations[key] = plain(c.t, json.RawMessage(value))
		}
	}
	kept := map[string]any{"annotations": annotations, "labels": labelsOf(c.t, pod.Labels)}
	spec := plain(c.t, pod.Spec).(map[string]any)
	for _, key := range []string{"initContainers", "containers", "volumes", "imagePullSecrets"} {
		if spec[key] != nil {
			kept[key] = spec[key]
		}
	}
	return kept
}

func labelsOf(t *testing.T, labels map[string]string) any {
	if labels == nil {
		labels = map[string]string{}
	}
	return plain(t, labels)
}

// renamed replaces the names of revisions by R1, R2, ..., in the order of their first use.
func (c *cluster) renamed(answers []answer) []answer {
	raw, err := json.Marshal(answers)
	require.NoError(c.t, err)
	text := string(raw)
	for i := range c.revisions {
		text = strings.ReplaceAll(text, `"`+c.revisions[i].Name+`"`, `"R`+string(rune('1'+i))+`"`)
	}
	var renamed []answer
	require.NoError(c.t, json.Unmarshal([]byte(text), &renamed))
	return renamed
}
