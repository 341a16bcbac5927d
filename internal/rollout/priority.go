package rollout

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// priority orders pods by labels. The priority comes before all other sort keys (SPEC §7.3).
type priority struct {
	keys    []string
	weights []weight
}

type weight struct {
	selector labels.Selector
	value    int32
}

func newPriority(strategy *v1alpha1.UpdatePriorityStrategy) (priority, error) {
	var p priority
	if strategy == nil {
		return p, nil
	}
	for _, term := range strategy.OrderPriority {
		p.keys = append(p.keys, term.OrderedKey)
	}
	for i := range strategy.WeightPriority {
		term := &strategy.WeightPriority[i]
		selector, err := metav1.LabelSelectorAsSelector(&term.MatchSelector)
		if err != nil {
			return p, fmt.Errorf("spec.updateStrategy.priorityStrategy.weightPriority[%d]: %w", i, err)
		}
		p.weights = append(p.weights, weight{selector, term.Weight})
	}
	return p, nil
}

// rank is the rank of a pod. The lower tier comes first. Within a tier, the larger number comes
// first.
type rank struct {
	tier   int64
	number string
}

func (p *priority) rank(pod *Pod) rank {
	if len(p.weights) > 0 {
		var total int64
		for _, w := range p.weights {
			if w.selector.Matches(labels.Set(pod.Labels)) {
				total += int64(w.value)
			}
		}
		return rank{tier: -total}
	}
	for i, key := range p.keys {
		if value, ok := pod.Labels[key]; ok {
			return rank{tier: int64(i + 1), number: trailingNumber(value)}
		}
	}
	return rank{}
}

func (r rank) compare(other rank) int {
	return cmp.Or(
		cmp.Compare(r.tier, other.tier),
		cmp.Compare(len(other.number), len(r.number)),
		cmp.Compare(other.number, r.number),
	)
}

// trailingNumber returns the digits at the end of a label value, without leading zeros. For example, the
// result for "sts-10" is "10". The result is a string, so the number cannot overflow.
func trailingNumber(value string) string {
	start := len(value)
	for start > 0 && value[start-1] >= '0' && value[start-1] <= '9' {
		start--
	}
	for start < len(value) && value[start] == '0' {
		start++
	}
	return value[start:]
}
