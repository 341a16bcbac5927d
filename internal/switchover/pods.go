package switchover

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
)

// setPods counts the pods with the sidecars of a SidecarSet, and the pods with each problem.
type setPods struct {
	set   *v1alpha1.SidecarSet
	scope match.Scope
	// version is nil if the hashes cannot be computed.
	version *podstate.Version
	// edited is the version after a change of images in the stored containers. applied is the
	// version after a change of images in the last manifest of kubectl apply. applied is nil
	// without such a manifest.
	edited, applied  *podstate.Version
	matched, updated int
	problems         [numProblems]tally
}

// tally counts pods, and keeps the name of the first pod as an example.
type tally struct {
	pods    int
	example string
}

func (t *tally) add(pod *corev1.Pod, detail string) {
	if t.pods == 0 {
		t.example = pod.Namespace + "/" + pod.Name + detail
	}
	t.pods++
}

// problem identifies a problem of a pod. The values of problem are the indexes of setPods.problems.
type problem int

const (
	unreadable problem = iota
	noActiveTwin
	migrating
	inProgress
	notUpgradable
	unreachableByEdit
	unreachableByApply
	outOfDate
	incomplete
	olderForm
	excluded
	numProblems
)

func newSetPods(set *v1alpha1.SidecarSet) *setPods {
	p := &setPods{set: set}
	// checkRules and checkHashes report these errors.
	p.scope, _ = match.NewScope(&set.Spec)
	p.version, _ = podstate.NewVersion(set)
	p.edited, p.applied = imageEdit(set, &set.Spec), imageEdit(set, lastApplied(set))
	return p
}

func (c *Check) addPod(pod *corev1.Pod) {
	sets := record.InjectedSets(pod.Annotations)
	if len(sets) == 0 || !match.Active(pod) {
		return
	}
	c.report.Pods++
	namespaceLabels := c.facts.Namespaces[pod.Namespace]
	injects := c.facts.Webhook.Namespace(pod.Namespace, namespaceLabels) && c.facts.Webhook.Pod(pod)
	for _, name := range sets {
		of := c.pods[name]
		if of == nil || of.version == nil || !of.scope.Labels(pod.Labels) || !of.scope.Namespace(pod.Namespace, namespaceLabels) {
			continue
		}
		if !injects && !of.set.Spec.InjectionStrategy.Paused {
			of.problems[excluded].add(pod, "")
		}
		of.add(pod)
	}
}

func (p *setPods) add(pod *corev1.Pod) {
	read, err := record.Read(pod.Annotations)
	if err != nil {
		p.problems[unreadable].add(pod, fmt.Sprintf(" (%v)", err))
		return
	}
	if detail := p.twinProblem(pod, read.Active); detail != "" {
		p.problems[noActiveTwin].add(pod, detail)
		return
	}
	state := p.version.OfRecord(pod, read)
	if !state.Complete {
		p.problems[incomplete].add(pod, "")
		return
	}
	p.matched++
	if state.Updated {
		p.updated++
	}
	if entry, found := read.Hashes[p.set.Name]; found && entry.SidecarSetName == "" {
		p.problems[olderForm].add(pod, "")
	}
	if problem, found := progress(state); found {
		p.problems[problem].add(pod, "")
	}
	if problem, found := p.unreachable(read.HashesWithoutImage[p.set.Name].Hash, state); found {
		p.problems[problem].add(pod, "")
	}
}

// progress reports an upgrade that is due, in progress, or not possible in place.
func progress(state podstate.State) (problem, bool) {
	switch {
	case !state.Updated && !state.Upgradable:
		return notUpgradable, true
	case state.Migrating:
		return migrating, true
	case !state.Updated:
		return outOfDate, true
	case state.UpgradedInPlace && !state.Converged():
		return inProgress, true
	}
	return 0, false
}

// twinProblem describes the first hot sidecar of the pod without a valid active twin. The result is empty if
// there is no such sidecar.
func (p *setPods) twinProblem(pod *corev1.Pod, active map[string]string) string {
	for _, s := range p.version.Sidecars {
		twins := s.InPod()
		if !s.Hot() || podstate.Container(pod, twins[0], false) == nil || podstate.Container(pod, twins[1], false) == nil {
			continue
		}
		switch {
		case active[s.Name] == "":
			return fmt.Sprintf(" (%s has no entry)", s.Name)
		case !slices.Contains(twins, active[s.Name]):
			return fmt.Sprintf(" (%q is not a twin of %s)", active[s.Name], s.Name)
		case podstate.Container(pod, active[s.Name], false).Image == s.EmptyImage:
			return fmt.Sprintf(" (%s holds the empty image)", active[s.Name])
		}
	}
	return ""
}

// checkPods reports the problems of the pods of a SidecarSet.
func (c *Check) checkPods(of *setPods) {
	c.report.Matched += of.matched
	c.report.Updated += of.updated
	old, next := Note, "The SidecarSet keeps them as they are."
	if rollsOut(of.set) {
		old, next = Differs, "Outrigger continues the rollout, within partition and maxUnavailable."
	}
	for _, m := range []struct {
		problem problem
		effect  Effect
		topic   string
		message string
	}{
		{unreadable, Blocks, "annotations", "annotations cannot be read. Outrigger does not manage such a pod: recreate it, or repair the annotation."},
		{noActiveTwin, Blocks, "hot upgrade", "annotation " + v1alpha1.WorkingHotUpgradeContainerAnnotation + " names no valid active twin. Recreate the pod, or repair the annotation."},
		{migrating, Differs, "hot upgrade", "the standby twin of a hot upgrade is not empty yet. Outrigger empties it once the pod is ready, unless updates are paused. Wait until OpenKruise has emptied it."},
		{excluded, Differs, "excluded pods", "API servers do not call the webhook of Outrigger for such a pod. After the switchover, a recreated pod has no sidecars. If the pod needs sidecars, remove its namespace from excludedNamespaces of the chart. Critical pods of kube-system and pods of the system namespace never get sidecars."},
		{notUpgradable, Differs, "not upgradable", "more than images differ from the SidecarSet. They stay as they are, and get condition " + v1alpha1.UpgradableCondition + "=False, until they are recreated."},
		{unreachableByEdit, Blocks, "image change", "an image change cannot upgrade it: Outrigger computes another hash of the SidecarSet than the pod has. It stays as it is until it is recreated."},
		{unreachableByApply, Differs, "image change", "the last manifest of kubectl apply, with another image, cannot upgrade it: the manifest differs from the SidecarSet in more than images. Apply a manifest that does not."},
		{outOfDate, old, "rollout", "an older version of the SidecarSet. " + next},
		{inProgress, Note, "rollout", "the last upgrade is in progress: the pod is not ready, or a container does not run its image yet."},
		{incomplete, Note, "pods", "a container of the SidecarSet is missing. Such pods do not count as matched."},
		{olderForm, Note, "annotations", "the annotation has the older form, SidecarSet name to hash. The next upgrade writes the newer form."},
	} {
		if tally := of.problems[m.problem]; tally.pods > 0 {
			c.find(m.effect, m.topic, objectOf(of.set), "%s, such as %s: %s", rollout.Count(tally.pods, "pod"), tally.example, m.message)
		}
	}
}

// imageEdit returns the version of a SidecarSet after spec is applied with other images. The result is nil if
// spec is nil, or if the hashes cannot be computed.
func imageEdit(set *v1alpha1.SidecarSet, spec *v1alpha1.SidecarSetSpec) *podstate.Version {
	if spec == nil {
		return nil
	}
	written := set.DeepCopy()
	written.Spec.Containers, written.Spec.InitContainers = otherImages(spec.Containers), otherImages(spec.InitContainers)
	if revision.Complete(written, set) != nil {
		return nil
	}
	// checkHashes reports the error.
	version, _ := podstate.NewVersion(written)
	return version
}

// lastApplied returns the last manifest of kubectl apply, or nil.
func lastApplied(set *v1alpha1.SidecarSet) *v1alpha1.SidecarSetSpec {
	var applied v1alpha1.SidecarSet
	err := json.Unmarshal([]byte(set.Annotations[corev1.LastAppliedConfigAnnotation]), &applied)
	if err != nil || len(applied.Spec.Containers)+len(applied.Spec.InitContainers) == 0 {
		return nil
	}
	return &applied.Spec
}

// otherImages returns the containers with other image names and the same tags, because tags determine the default
// of imagePullPolicy.
func otherImages(containers []v1alpha1.SidecarContainer) []v1alpha1.SidecarContainer {
	edited := make([]v1alpha1.SidecarContainer, len(containers))
	for i := range containers {
		containers[i].DeepCopyInto(&edited[i])
		edited[i].Image = "edited/" + edited[i].Image
	}
	return edited
}

// unreachable reports whether a pod that is updated or upgradable could not be upgraded in place after a change
// of only images.
func (p *setPods) unreachable(hashWithoutImage string, state podstate.State) (problem, bool) {
	switch {
	case !state.Updated && !state.Upgradable:
	case p.edited != nil && !p.edited.Reaches(hashWithoutImage):
		return unreachableByEdit, true
	case p.applied != nil && !p.applied.Reaches(hashWithoutImage):
		return unreachableByApply, true
	}
	return 0, false
}
