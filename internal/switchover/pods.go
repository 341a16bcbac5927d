package switchover

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// setPods counts the pods that hold a set's sidecars, by what is the matter with them.
type setPods struct {
	set   *v1alpha1.SidecarSet
	scope match.Scope
	// version is nil for a set without hashes, and scope of one whose selectors
	// cannot be read is empty: rules and hashes say so.
	version          *podstate.Version
	matched, updated int
	matters          [numMatters]tally
}

// tally counts pods of which one is named.
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

// matter is what can be the matter with a pod.
type matter int

const (
	unreadable matter = iota
	twinsAstray
	halfway
	settling
	notUpgradable
	outOfDate
	incomplete
	olderForm
	numMatters
)

func newSetPods(set *v1alpha1.SidecarSet) *setPods {
	p := &setPods{set: set}
	p.scope, _ = match.NewScope(&set.Spec)
	if version, err := podstate.NewVersion(set); err == nil {
		p.version = version
	}
	return p
}

func (c *Check) addPod(pod *corev1.Pod) {
	sets := record.InjectedSets(pod.Annotations)
	if len(sets) == 0 || !match.Active(pod) {
		return
	}
	c.report.Pods++
	for _, name := range sets {
		of := c.pods[name]
		if of == nil || of.version == nil || !of.scope.Labels(pod.Labels) || !of.scope.Namespace(pod.Namespace, c.facts.Namespaces[pod.Namespace]) {
			continue
		}
		of.add(pod)
	}
}

func (p *setPods) add(pod *corev1.Pod) {
	state, err := p.version.Of(pod)
	if err != nil {
		p.matters[unreadable].add(pod, fmt.Sprintf(" (%v)", err))
		return
	}
	if detail := p.astray(pod); detail != "" {
		p.matters[twinsAstray].add(pod, detail)
		return
	}
	if !state.Complete {
		p.matters[incomplete].add(pod, "")
		return
	}
	p.matched++
	if state.Updated {
		p.updated++
	}
	if entries, err := record.Hashes(pod.Annotations); err == nil {
		if entry, found := entries[p.set.Name]; found && entry.SidecarSetName == "" {
			p.matters[olderForm].add(pod, "")
		}
	}
	if matter, found := progress(state); found {
		p.matters[matter].add(pod, "")
	}
}

// progress says what of an upgrade is yet to come, if anything is.
func progress(state podstate.State) (matter, bool) {
	switch {
	case !state.Updated && !state.Upgradable:
		return notUpgradable, true
	case state.Migrating:
		return halfway, true
	case !state.Updated:
		return outOfDate, true
	case state.Touched && !state.Settled():
		return settling, true
	}
	return 0, false
}

// astray says which hot sidecar of the pod has no twin that can be the active one.
func (p *setPods) astray(pod *corev1.Pod) string {
	active, err := record.ActiveContainers(pod.Annotations)
	if err != nil {
		return ""
	}
	for _, s := range p.version.Sidecars {
		twins := s.Twins()
		if !s.Hot() || podstate.Container(pod, twins[0], false) == nil || podstate.Container(pod, twins[1], false) == nil {
			continue
		}
		switch {
		case active[s.Name] == "":
			return fmt.Sprintf(" (none is named for %s)", s.Name)
		case !slices.Contains(twins[:], active[s.Name]):
			return fmt.Sprintf(" (%s is none of the twins of %s)", active[s.Name], s.Name)
		case podstate.Container(pod, active[s.Name], false).Image == s.EmptyImage:
			return fmt.Sprintf(" (%s holds the empty image)", active[s.Name])
		}
	}
	return ""
}

// checkPods reports what is the matter with the pods of a set.
func (c *Check) checkPods(of *setPods) {
	c.report.Matched += of.matched
	c.report.Updated += of.updated
	old := Note
	onwards := "They stay as they are while the set says so."
	if rollsOut(of.set) {
		old, onwards = Differs, "Outrigger goes on with the rollout, within the set's partition and maxUnavailable."
	}
	for _, m := range []struct {
		matter  matter
		effect  Effect
		topic   string
		message string
	}{
		{unreadable, Blocks, "annotations", "annotations cannot be read. Outrigger leaves such a pod alone: create it again, or mend the annotation."},
		{twinsAstray, Blocks, "hot upgrade", "annotation " + v1alpha1.WorkingHotUpgradeContainerAnnotation + " names no twin that can be the active one. Create the pod again, or mend the annotation."},
		{halfway, Differs, "hot upgrade", "the standby twin of a hot upgrade is yet to be emptied. Outrigger does so once the pod is ready, unless updates are paused; better wait until OpenKruise has."},
		{notUpgradable, Differs, "not upgradable", "more than images differ from the set. They stay as they are, and get condition " + v1alpha1.UpgradableCondition + "=False, until they are created again."},
		{outOfDate, old, "rollout", "the set's newest version is yet to come. " + onwards},
		{settling, Note, "rollout", "the last upgrade is not over: the pod is not ready, or a container does not run its image yet."},
		{incomplete, Note, "pods", "a container of the set is missing. Such pods do not count as matched."},
		{olderForm, Note, "annotations", "the annotation has the older form, set name to hash. It is read, and written in the newer form at the next upgrade."},
	} {
		if tally := of.matters[m.matter]; tally.pods > 0 {
			c.find(m.effect, m.topic, objectOf(of.set), "%s, such as %s: %s", plural(tally.pods, "pod"), tally.example, m.message)
		}
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
