package observer

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// version is the state of a SidecarSet after one write.
type version struct {
	name       string
	uid        types.UID
	generation int64
	seen       time.Time
	// gone is true if the SidecarSet is deleted or is being deleted.
	gone        bool
	hash, blank string
	stopped     bool
	selector    labels.Selector
	// canary selects the pods that may be upgraded. If canary is set, the partition does not apply.
	canary                    labels.Selector
	maxUnavailable, partition *intstr.IntOrString
	sidecars                  []sidecar
	status                    v1alpha1.SidecarSetStatus
}

// sidecar is a container of a SidecarSet. If the sidecar is hot, empty is the image of the
// standby twin.
type sidecar struct{ name, image, empty string }

// containers returns the names of the containers of the sidecar in a pod.
func (s sidecar) containers() []string {
	if s.empty == "" {
		return []string{s.name}
	}
	return []string{s.name + "-1", s.name + "-2"}
}

// standby returns the name of the standby twin.
func (s sidecar) standby(p *pod) string {
	if p.active[s.name] == s.name+"-1" {
		return s.name + "-2"
	}
	return s.name + "-1"
}

func newVersion(e event, set *v1alpha1.SidecarSet) (*version, error) {
	v := &version{
		name: set.Name, uid: set.UID, generation: set.Generation, seen: e.seen,
		gone: e.deleted || set.DeletionTimestamp != nil, hash: set.Annotations[v1alpha1.HashAnnotation],
		blank:          set.Annotations[v1alpha1.HashWithoutImageAnnotation],
		maxUnavailable: set.Spec.UpdateStrategy.MaxUnavailable, partition: set.Spec.UpdateStrategy.Partition,
		stopped: set.Spec.UpdateStrategy.Paused || set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType,
		status:  set.Status,
	}
	var err error
	if v.selector, err = metav1.LabelSelectorAsSelector(set.Spec.Selector); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: selector: %w", set.Name, err)
	}
	if canary := set.Spec.UpdateStrategy.Selector; canary != nil {
		if v.canary, err = metav1.LabelSelectorAsSelector(canary); err != nil {
			return nil, fmt.Errorf("SidecarSet %s: update selector: %w", set.Name, err)
		}
	}
	for i := range set.Spec.Containers {
		c := &set.Spec.Containers[i]
		s := sidecar{name: c.Name, image: c.Image}
		if c.UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade {
			s.empty = c.UpgradeStrategy.HotUpgradeEmptyImage
		}
		v.sidecars = append(v.sidecars, s)
	}
	return v, nil
}

// slots returns the number of matched pods that may be unavailable at once (SPEC §7.5).
func (v *version) slots(matched int) int {
	if v.maxUnavailable == nil {
		return 1
	}
	return scaled(v.maxUnavailable, matched)
}

// kept returns the number of matched pods that must stay old (SPEC §7.4).
func (v *version) kept(matched int) int {
	if v.partition == nil || v.canary != nil || matched == 0 {
		return 0
	}
	kept := scaled(v.partition, matched)
	if v.partition.Type == intstr.String && v.partition.StrVal != "0%" && v.partition.StrVal != "100%" && matched > 1 {
		kept = min(max(kept, 1), matched-1)
	}
	return min(kept, matched)
}

// scaled returns the value of a number, or of a percentage of total, rounded up. For other texts, which
// admission rejects, scaled returns 0.
func scaled(value *intstr.IntOrString, total int) int {
	n, _ := intstr.GetScaledValueFromIntOrPercent(value, total, true)
	return n
}

// history contains all versions of the SidecarSets with the same name, including deleted and recreated
// SidecarSets.
type history struct {
	versions []*version
	// sizes contains the numbers of matched pods over time.
	sizes []size
}

type size struct {
	from    time.Time
	matched int
}

func (h *history) newest() *version { return h.versions[len(h.versions)-1] }

// since returns the versions that were in effect at from or later, the oldest first. The writes are checked
// in their order. The newest version was therefore in effect at the checked write, even if the event of this
// version arrived late.
func (h *history) since(from time.Time) []*version {
	first := len(h.versions) - 1
	for first > 0 && h.versions[first].seen.After(from) {
		first--
	}
	return h.versions[first:]
}

// extremes returns the smallest and the largest number of matched pods since the time from.
func (h *history) extremes(from time.Time) (fewest, most int) {
	for i := len(h.sizes) - 1; i >= 0; i-- {
		matched := h.sizes[i].matched
		if i == len(h.sizes)-1 {
			fewest, most = matched, matched
		}
		fewest, most = min(fewest, matched), max(most, matched)
		if h.sizes[i].from.Before(from) {
			break
		}
	}
	return fewest, most
}
