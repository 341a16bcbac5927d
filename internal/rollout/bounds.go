package rollout

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Partition returns the number of matched pods that keep the old version (SPEC §7.4). The number is 0 if the
// strategy has an update selector. Partition returns an error for a string that is not a percentage.
func Partition(strategy *v1alpha1.SidecarSetUpdateStrategy, matched int) (int, error) {
	if strategy.Selector != nil || strategy.Partition == nil {
		return 0, nil
	}
	kept, err := scaled("partition", strategy.Partition, matched)
	if err != nil {
		return 0, err
	}
	// If more than one pod matches, a percentage below 100 % leaves at least one pod to upgrade.
	if strategy.Partition.Type == intstr.String && matched > 1 && kept > 0 && strategy.Partition.StrVal != "100%" {
		kept = min(kept, matched-1)
	}
	return min(kept, matched), nil
}

// KeepsPods reports whether the partition keeps pods of a SidecarSet with many pods at the old version. The
// result is true for an invalid partition.
func KeepsPods(strategy *v1alpha1.SidecarSetUpdateStrategy) bool {
	kept, err := Partition(strategy, math.MaxInt16)
	return err != nil || kept > 0
}

// MaxUnavailable returns the number of pods that upgrades may make unavailable (SPEC §7.5). The default is 1.
// MaxUnavailable returns an error for a string that is not a percentage.
func MaxUnavailable(strategy *v1alpha1.SidecarSetUpdateStrategy, matched int) (int, error) {
	if strategy.MaxUnavailable == nil {
		return 1, nil
	}
	return scaled("maxUnavailable", strategy.MaxUnavailable, matched)
}

func scaled(field string, value *intstr.IntOrString, total int) (int, error) {
	n, err := intstr.GetScaledValueFromIntOrPercent(value, total, true)
	if err != nil {
		return 0, fmt.Errorf("spec.updateStrategy.%s: %w", field, err)
	}
	return max(n, 0), nil
}
