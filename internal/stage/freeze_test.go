package stage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func freeze(name string, labels map[string]string, until time.Duration) outriggerv1.RolloutFreeze {
	f := outriggerv1.RolloutFreeze{ObjectMeta: metav1.ObjectMeta{Name: name}}
	f.Spec.Selector.MatchLabels = labels
	if until != 0 {
		f.Spec.Until = &metav1.Time{Time: now.Add(until)}
	}
	return f
}

func TestSpec11_7_FreezesApplyToTheSidecarSetsThatTheySelect(t *testing.T) {
	tier, other := map[string]string{"tier": "edge"}, map[string]string{"tier": "core"}
	deleted := freeze("a", nil, 0)
	deleted.DeletionTimestamp = new(metav1.NewTime(now))
	invalid := freeze("a", other, 0)
	invalid.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}
	expressed := func(operator metav1.LabelSelectorOperator) outriggerv1.RolloutFreeze {
		f := freeze("a", nil, 0)
		f.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: operator}}
		return f
	}
	for _, c := range []struct {
		name    string
		freezes []outriggerv1.RolloutFreeze
		frozen  string
	}{
		{"none", nil, ""},
		{"without a selector", []outriggerv1.RolloutFreeze{freeze("a", nil, 0)}, "a"},
		{"by a label", []outriggerv1.RolloutFreeze{freeze("a", tier, 0)}, "a"},
		{"another label", []outriggerv1.RolloutFreeze{freeze("a", other, 0)}, ""},
		{"an expression that selects", []outriggerv1.RolloutFreeze{expressed(metav1.LabelSelectorOpExists)}, "a"},
		{"an expression that does not select", []outriggerv1.RolloutFreeze{expressed(metav1.LabelSelectorOpDoesNotExist)}, ""},
		{"an invalid selector selects all", []outriggerv1.RolloutFreeze{invalid}, "a"},
		{"before its end", []outriggerv1.RolloutFreeze{freeze("a", tier, time.Nanosecond)}, "a"},
		{"from its end on", []outriggerv1.RolloutFreeze{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: outriggerv1.RolloutFreezeSpec{Until: &metav1.Time{Time: now}}}}, ""},
		{"after its end", []outriggerv1.RolloutFreeze{freeze("a", tier, -time.Hour)}, ""},
		{"being deleted", []outriggerv1.RolloutFreeze{deleted}, ""},
		{"the freeze that ends last", []outriggerv1.RolloutFreeze{freeze("a", tier, time.Hour), freeze("b", nil, 2*time.Hour), freeze("c", nil, time.Minute)}, "b"},
		{"a freeze without an end ends last", []outriggerv1.RolloutFreeze{freeze("a", tier, time.Hour), freeze("c", nil, 0), freeze("b", nil, 2*time.Hour)}, "c"},
		{"of equal ends, the first name", []outriggerv1.RolloutFreeze{freeze("b", tier, time.Hour), freeze("a", nil, time.Hour)}, "a"},
		{"of two without an end, the first name", []outriggerv1.RolloutFreeze{freeze("b", tier, 0), freeze("a", nil, 0)}, "a"},
		{"a freeze of others does not hide it", []outriggerv1.RolloutFreeze{freeze("a", other, 0), deleted, freeze("b", tier, time.Hour)}, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := FreezeOf(edge(), c.freezes, now)
			if c.frozen == "" {
				assert.Nil(t, found)
				return
			}
			if assert.NotNil(t, found) {
				assert.Equal(t, c.frozen, found.Name)
			}
		})
	}
}

func TestTheMessageOfAFreezeNamesItsEndAndReason(t *testing.T) {
	f := freeze("black-friday", nil, 12*time.Hour)
	assert.Equal(t, "frozen by RolloutFreeze black-friday until 2026-11-28T00:00:00Z", FreezeMessage(&f))
	f.Spec.Reason = "sales"
	assert.Equal(t, "frozen by RolloutFreeze black-friday until 2026-11-28T00:00:00Z: sales", FreezeMessage(&f))
	f.Spec.Until = nil
	assert.Equal(t, "frozen by RolloutFreeze black-friday: sales", FreezeMessage(&f))
}
