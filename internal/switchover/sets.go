package switchover

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/validation"
)

// checkHashes compares the stored hashes with the hashes that the next write of the
// SidecarSet would store.
func (c *Check) checkHashes(set *v1alpha1.SidecarSet) {
	written := set.DeepCopy()
	if err := revision.Complete(written, set); err != nil {
		c.find(Blocks, "hash", objectOf(set), "Its hash cannot be computed: %v.", err)
		return
	}
	for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation} {
		stored, computed := set.Annotations[key], written.Annotations[key]
		switch {
		case stored == "":
			c.find(Blocks, "hash", objectOf(set), "It has no annotation %s, because no webhook was called when it was stored. Write it again.", key)
		case stored != computed:
			c.find(Blocks, "hash", objectOf(set), "Annotation %s is %s, and the next write of the SidecarSet makes it %s: its %d matched pods would be out of date.",
				key, stored, computed, c.pods[set.Name].matched)
		}
	}
}

// checkPin reports a pin to a missing revision, and a pin with the policy Partial, for which OpenKruise selects
// the pods at random.
func (c *Check) checkPin(set *v1alpha1.SidecarSet) {
	name, version := revision.Pin(set)
	if name == "" && version == "" {
		return
	}
	if _, err := revision.FindPinned(set, revision.Of(set, c.facts.Revisions)); err != nil {
		c.find(Blocks, "pin", objectOf(set), "%v. OpenKruise injects the newest content instead; Outrigger rejects the pod.", err).
			Remedy = "kubectl get controllerrevisions -A -l " + v1alpha1.SidecarSetNameLabel + "=" + set.Name
		return
	}
	pin := set.Spec.InjectionStrategy.Revision
	if pin.Policy == v1alpha1.PartialSidecarSetInjectRevisionPolicy && set.Spec.UpdateStrategy.Selector == nil {
		c.find(Differs, "pin", objectOf(set), "Policy Partial: name and owner of a new pod, or the request that creates it, decide whether it gets the pinned revision. OpenKruise decides at random.")
	}
}

func (c *Check) whitelist() *validation.Whitelist {
	parsed, err := validation.ParseWhitelist(c.facts.Whitelist)
	if err != nil {
		c.find(Blocks, "whitelist", "ConfigMap/"+v1alpha1.ConfigurationName, "No SidecarSet with patchPodMetadata could be changed: %v.", err)
		return nil
	}
	return parsed
}

// stays describes the effect of a rule on a stored SidecarSet that violates the rule.
const stays = "A new SidecarSet with it is rejected. The stored one keeps it until this field changes; edits of other fields are accepted."

// checkRules checks a SidecarSet against the rules for new SidecarSets.
func (c *Check) checkRules(set *v1alpha1.SidecarSet, whitelist *validation.Whitelist) {
	ratchet := validation.NewRatchet(set, nil)
	ratchet.Conflicts(c.facts.Sets, c.facts.Revisions)
	c.report.rejections(set, ratchet.Rejected())
	if whitelist != nil {
		c.checkMetadata(set, whitelist)
	}
}

// checkMetadata checks patchPodMetadata against the whitelist. The feature gate patchPodMetadata turns the
// whitelist off.
func (c *Check) checkMetadata(set *v1alpha1.SidecarSet, whitelist *validation.Whitelist) {
	keys := validation.Causes(validation.ValidateMetadata(set, whitelist))
	switch {
	case len(keys) == 0 || isOn(featureGates(named(c.facts.Deployments, outriggerWebhook)), patchPodMetadata):
	case isOn(c.gates, patchPodMetadata):
		c.find(Blocks, "feature gate", objectOf(set), "%s: only the feature gate %s of OpenKruise allows it. Give outrigger webhook --feature-gates=%s=true, or extend the whitelist.",
			fieldsOf(keys), patchPodMetadata, patchPodMetadata)
	default:
		c.report.rejections(set, keys)
	}
}

func (r *Report) rejections(set *v1alpha1.SidecarSet, causes []metav1.StatusCause) {
	for _, cause := range causes {
		r.Findings = append(r.Findings, Finding{Effect: Differs, Topic: "rules", Object: objectOf(set), Message: cause.Field + ": " + strings.TrimSuffix(cause.Message, ".") + ". " + stays})
	}
}

func fieldsOf(causes []metav1.StatusCause) string {
	fields := make([]string, len(causes))
	for i := range causes {
		fields[i] = causes[i].Field
	}
	return strings.Join(fields, ", ")
}

// noteStrategy adds notes about pauses and native sidecars of a SidecarSet.
func (c *Check) noteStrategy(set *v1alpha1.SidecarSet) {
	strategy := &set.Spec.UpdateStrategy
	if set.Spec.InjectionStrategy.Paused {
		c.find(Note, "paused", objectOf(set), "Its injection is paused, and stays so.")
	}
	if strategy.Paused {
		c.find(Note, "paused", objectOf(set), "Its updates are paused, and stay so.")
	}
	for i := range set.Spec.InitContainers {
		if native := &set.Spec.InitContainers[i]; revision.IsNativeSidecar(&native.Container) {
			c.find(Note, "native sidecar", objectOf(set), "Init container %s is a native sidecar: Outrigger upgrades it in place.", native.Name)
		}
	}
}

// rollsOut reports whether the update strategy allows upgrades of outdated pods now.
func rollsOut(set *v1alpha1.SidecarSet) bool {
	strategy := &set.Spec.UpdateStrategy
	return strategy.Type != v1alpha1.NotUpdateSidecarSetStrategyType && !strategy.Paused
}
