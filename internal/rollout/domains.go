package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// domains limits the domains in which upgrades make pods unavailable at once (SPEC §11.10). A pod whose node has
// no domain is not limited.
type domains struct {
	limit       int
	of          func(node string) string
	unavailable map[string]bool
}

func newDomains(limit int, of func(node string) string) *domains {
	return &domains{limit: limit, of: of, unavailable: map[string]bool{}}
}

func (d *domains) needs(pod *Pod) bool { return pod.NeedsSlot() }

// full reports whether the limit has no slot for a pod. While more domains than the limit have unavailable
// pods, no domain has a slot.
func (d *domains) full(pod *Pod) bool {
	domain := d.of(pod.Spec.NodeName)
	if d.unavailable[domain] {
		return len(d.unavailable) > d.limit
	}
	return domain != "" && len(d.unavailable) >= d.limit
}

func (d *domains) take(pod *Pod) {
	if domain := d.of(pod.Spec.NodeName); domain != "" {
		d.unavailable[domain] = true
	}
}

func (d *domains) wants(*Pod) string {
	return fmt.Sprintf("the pods of %s (maxUnavailableDomains %d)", strings.Join(slices.Sorted(maps.Keys(d.unavailable)), ", "), d.limit)
}

// domainOrder returns the positions of the domains, and the function that returns the domain of a node. If the
// step does not limit domains, both results are nil.
func (s *scope) domainOrder(candidates []candidate) (positions map[string]int, of func(node string) string) {
	if s == nil || s.step.Domains == nil || s.cluster.Domain == nil {
		return nil, nil
	}
	return domainOrder(s.cluster.Domain, s.pods, candidates), s.cluster.Domain
}

// domainOrder returns the position of each domain in the rollout. Domains with unavailable pods come first,
// followed by domains with upgraded pods, so that the rollout finishes a domain before the next domain begins.
// All other domains have the order of their first candidate.
func domainOrder(of func(node string) string, pods []Pod, candidates []candidate) map[string]int {
	type progress struct {
		name                  string
		unavailable, upgraded int
	}
	var order []*progress
	known := map[string]*progress{}
	for i := range candidates {
		if name := of(candidates[i].Spec.NodeName); known[name] == nil {
			known[name] = &progress{name: name}
			order = append(order, known[name])
		}
	}
	for i := range pods {
		pod := &pods[i]
		domain := known[of(pod.Spec.NodeName)]
		if domain == nil {
			continue
		}
		if pod.UnavailableByUpgrade() {
			domain.unavailable = 1
		}
		if pod.Updated && pod.UpgradedToVersion {
			domain.upgraded++
		}
	}
	slices.SortStableFunc(order, func(a, b *progress) int {
		return cmp.Or(cmp.Compare(b.unavailable, a.unavailable), cmp.Compare(b.upgraded, a.upgraded))
	})
	positions := make(map[string]int, len(order))
	for i, domain := range order {
		positions[domain.name] = i
	}
	return positions
}
