package stage

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
)

// Former returns the revision for new pods that do not get the current content of a SidecarSet (SPEC §11.5).
// During and after a rollback, Former returns the revision of the rollback, even if injection is pinned,
// because some pods may not get the pinned revision. Otherwise, Former returns the last good revision. Former
// returns nil if no RolloutPolicy can withhold the current content from a new pod, or if no good revision
// exists. set must be a result of revision.Completed.
func Former(set *v1alpha1.SidecarSet) *v1alpha1.GoodRevision {
	if q := QuarantineOf(set); q != nil {
		return &v1alpha1.GoodRevision{Revision: q.Revision}
	}
	good := set.Status.LastGoodRevision()
	if good == nil || good.Hash == set.Annotations[v1alpha1.HashAnnotation] || set.Spec.InjectionStrategy.Revision != nil || !upgrades(set) {
		return nil
	}
	return good
}

// upgrades reports whether the rollout upgrades pods in place. With NotUpdate, or if no remaining pod is
// upgradable, the rollout upgrades no pod in place, and only new pods get the current content. A step that
// withholds the content from new pods would then never end.
func upgrades(set *v1alpha1.SidecarSet) bool {
	if set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType {
		return false
	}
	return set.ProgressingReason() != v1alpha1.ReasonNotUpgradablePods
}

// Complete reports whether status shows that no pod of the current generation remains to be upgraded or
// recreated.
func Complete(set *v1alpha1.SidecarSet) bool {
	return set.ProgressingReason() == v1alpha1.ReasonRolloutComplete
}

// NewPods returns the share of the new pods that get the current content of a SidecarSet. All other new pods get
// the former revision (SPEC §11.5). If NewPods returns an error, the share is empty, so that no new pod gets
// content that a policy may delay.
func NewPods(set *v1alpha1.SidecarSet, policies []outriggerv1.RolloutPolicy) (inject.Share, error) {
	current := OfStatus(set)
	switch {
	case current == nil:
	case current.Done:
		return inject.AllPods(), nil
	case current.Step != nil:
		return shareOf(&current.Step.UpTo, set.Status.MatchedPods)
	}
	policy, err := PolicyOf(set, policies)
	switch {
	case err != nil:
		return inject.Share{}, err
	case policy == nil || len(policy.Spec.Steps) == 0:
		return inject.AllPods(), nil
	case current == nil || current.Index == 0:
		// No step has begun.
		return inject.Share{}, nil
	case current.Index >= len(policy.Spec.Steps):
		return inject.AllPods(), nil
	}
	// A step has ended, and the next step has not begun.
	return shareOf(&policy.Spec.Steps[current.Index-1].UpTo, set.Status.MatchedPods)
}

// shareOf returns the share of a step. If no pods are matched, a number of pods cannot be converted to a
// share, so the share is empty.
func shareOf(upTo *intstr.IntOrString, matched int32) (inject.Share, error) {
	if upTo.Type == intstr.Int && matched == 0 {
		return inject.Share{}, nil
	}
	share, err := inject.ShareOf(upTo, matched)
	if err != nil {
		return inject.Share{}, fmt.Errorf("upTo %s: %w", upTo.String(), err)
	}
	return share, nil
}
