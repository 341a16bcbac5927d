package registration

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/kube"
)

// widenedAnnotation contains the time of the last widening by the admission of a SidecarSet. Each widening
// changes the annotation, even if the match condition does not change. If a replica narrows the condition at
// the same time, its patch therefore fails with a conflict.
const widenedAnnotation = "outrigger.io/match-conditions-widened"

// narrowDelay is the time for which the condition and the annotation must be unchanged before a replica
// narrows the condition. narrowDelay is longer than the timeout of a request to an API server. After
// narrowDelay, each admitted SidecarSet has therefore been stored or rejected.
const narrowDelay = 5 * time.Minute

// observedCondition records a match condition with the value of widenedAnnotation, and the time at which this
// replica first observed this pair. The time comes from the clock of this replica, so clock skew between
// replicas does not shorten narrowDelay.
type observedCondition struct {
	state string
	since time.Time
}

// followSets updates the match condition of the pod webhook for the current SidecarSets. followSets returns
// the time until the condition may be narrowed, or 0.
func (r *Reconciler) followSets(ctx context.Context, configuration *admissionregistrationv1.MutatingWebhookConfiguration, activating bool) (time.Duration, error) {
	pods := kube.WebhookNamed(configuration, podWebhook)
	if pods == nil {
		return 0, nil
	}
	if !r.matchConditions {
		setCondition(pods, match.ParseCondition(""))
		delete(configuration.Annotations, widenedAnnotation)
		return 0, nil
	}
	current := match.ConditionOf(pods)
	if current.Everything() && slices.ContainsFunc(pods.MatchConditions, isFollowed) {
		// Another client has written an unknown expression, which may exclude pods.
		r.set(pods, current)
	}
	r.observe(current, configuration.Annotations[widenedAnnotation])
	if activating {
		return 0, r.narrow(ctx, pods, match.Condition{})
	}
	wanted, err := selectedBySets(ctx, r.client)
	switch {
	case err != nil:
		return 0, err
	case !current.Covers(wanted):
		r.set(pods, current.Union(wanted))
		return 0, nil
	case wanted.Covers(current):
		return 0, nil
	}
	if wait := r.observed.since.Add(narrowDelay).Sub(r.now()); wait > 0 {
		return wait, nil
	}
	return 0, r.narrow(ctx, pods, current)
}

func (r *Reconciler) observe(current match.Condition, widened string) {
	state := widened
	if !current.Everything() {
		state += " " + current.Expression()
	}
	if r.observed.state != state || r.observed.since.IsZero() {
		r.observed = observedCondition{state, r.now()}
	}
}

// narrow sets the match condition to the pods that the stored SidecarSets can select. narrow lists the
// SidecarSets from the API server, so the list is newer than the configuration from the cache. If an
// admission has widened the condition after this configuration was read, the patch of the configuration
// fails with a conflict.
func (r *Reconciler) narrow(ctx context.Context, pods *admissionregistrationv1.MutatingWebhook, current match.Condition) error {
	wanted, err := selectedBySets(ctx, r.live)
	if err != nil {
		return err
	}
	if !current.Covers(wanted) {
		wanted = wanted.Union(current)
	}
	r.set(pods, wanted)
	return nil
}

func (r *Reconciler) set(pods *admissionregistrationv1.MutatingWebhook, condition match.Condition) {
	if condition.Everything() {
		r.log.Info("API servers call the webhook for every pod: the SidecarSets have too many selectors for a match condition, or a selector or the match condition cannot be read", "webhook", podWebhook)
	}
	setCondition(pods, condition)
}

// selectedBySets returns the condition of all SidecarSets.
func selectedBySets(ctx context.Context, reader client.Reader) (match.Condition, error) {
	var sets v1alpha1.SidecarSetList
	if err := reader.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
		return match.Condition{}, fmt.Errorf("list the SidecarSets for the match condition of webhook %s: %w", podWebhook, err)
	}
	scopes := make([]match.Scope, len(sets.Items))
	for i := range sets.Items {
		// With an error, the scope contains every pod that the SidecarSet could match.
		scopes[i], _ = match.NewScope(&sets.Items[i].Spec)
	}
	return match.NewCondition(scopes...), nil
}

func isFollowed(condition admissionregistrationv1.MatchCondition) bool {
	return condition.Name == match.ConditionName
}

// setCondition changes only the match condition that is derived from the SidecarSets. The installer owns other
// match conditions. A condition that contains every pod is removed.
func setCondition(pods *admissionregistrationv1.MutatingWebhook, condition match.Condition) {
	i := slices.IndexFunc(pods.MatchConditions, isFollowed)
	switch {
	case condition.Everything() && i >= 0:
		pods.MatchConditions = slices.Delete(pods.MatchConditions, i, i+1)
	case condition.Everything():
	case i >= 0:
		pods.MatchConditions[i].Expression = condition.Expression()
	default:
		pods.MatchConditions = append(pods.MatchConditions, admissionregistrationv1.MatchCondition{Name: match.ConditionName, Expression: condition.Expression()})
	}
}
