package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
)

func edge() *outriggerv1.RolloutPolicy {
	return &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: outriggerv1.RolloutPolicySpec{
		Windows: []outriggerv1.RolloutWindow{{Schedule: "0 9 * * 1-5", TimeZone: "Europe/Berlin"}},
		Gates: []outriggerv1.RolloutGate{
			{Name: "checks", Webhook: &outriggerv1.WebhookGate{URL: "https://checks"}},
			{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{Query: `errors{revision="{{.Revision}}"}`, Success: "value < 1.0"}},
		},
	}}
}

func TestSpec11_1_APolicyThatNoRunCouldFollowIsInvalid(t *testing.T) {
	assert.Empty(t, Introduced(edge(), nil))
	for says, change := range map[string]func(*outriggerv1.RolloutPolicySpec){
		`spec.selector: `: func(p *outriggerv1.RolloutPolicySpec) {
			p.Selector.MatchLabels = map[string]string{"team": "not a label"}
		},
		`spec.windows[0]: Invalid value: "0 99 * * * Europe/Berlin": schedule "0 99 * * *": `: func(p *outriggerv1.RolloutPolicySpec) { p.Windows[0].Schedule = "0 99 * * *" },
		`spec.windows[0]: Invalid value: "0 9 * * 1-5 Europe/Brlin": timeZone: `:              func(p *outriggerv1.RolloutPolicySpec) { p.Windows[0].TimeZone = "Europe/Brlin" },
		`spec.gates[errors].prometheus.success: Invalid value: "value <": `: func(p *outriggerv1.RolloutPolicySpec) {
			p.Gates[1].Prometheus.Success = "value <"
		},
		`spec.gates[errors].prometheus.failure: Invalid value: "values > 1.0": `: func(p *outriggerv1.RolloutPolicySpec) {
			p.Gates[1].Prometheus.Failure = "values > 1.0"
		},
		`spec.gates[errors].prometheus.query: Invalid value: "{{.Pod}}": `: func(p *outriggerv1.RolloutPolicySpec) { p.Gates[1].Prometheus.Query = "{{.Pod}}" },
	} {
		changed := edge()
		change(&changed.Spec)
		found := Introduced(changed, nil)
		require.Len(t, found, 1, says)
		assert.Contains(t, found[0].Error(), says)
		assert.Contains(t, found[0].Error(), "; correct the ")
	}
}

func TestSpec11_1_AnUpdateMayKeepTheErrorsOfTheStoredPolicy(t *testing.T) {
	stored := edge()
	stored.Spec.Gates[1].Prometheus.Query = "{{"
	changed := stored.DeepCopy()
	changed.Spec.MatchingPrecedence = 7
	assert.Empty(t, Introduced(changed, stored))
	changed.Spec.Gates[1].Prometheus.Success = "value <"
	found := Introduced(changed, stored)
	require.Len(t, found, 1, "an earlier error hides no new error of the same gate")
	assert.Equal(t, "spec.gates[errors].prometheus.success", found[0].Field)

	stored = edge()
	stored.Spec.Windows[0].TimeZone = "Europe/Brlin"
	changed = stored.DeepCopy()
	changed.Spec.Windows = append([]outriggerv1.RolloutWindow{{Schedule: "0 12 * * 6"}}, changed.Spec.Windows...)
	assert.Empty(t, Introduced(changed, stored), "the window has another index now")
	changed.Spec.Windows[0].TimeZone = "Europe/Brlin"
	assert.Len(t, Introduced(changed, stored), 1)
}
