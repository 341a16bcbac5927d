package validation

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

func TestSpec5_ALimitThatStopsRolloutsIsWarnedOf(t *testing.T) {
	of := func(limit *intstr.IntOrString, kind v1alpha1.SidecarSetUpdateStrategyType) []string {
		set := fixture.SidecarSet("s", fixture.Sidecar("a"))
		set.Spec.UpdateStrategy.MaxUnavailable, set.Spec.UpdateStrategy.Type = limit, kind
		return Warnings(set)
	}
	want := []string{"spec.updateStrategy.maxUnavailable: with 0, no ready pod is upgraded; raise it to roll out"}
	assert.Equal(t, want, of(new(intstr.FromInt32(0)), ""))
	assert.Equal(t, want, of(new(intstr.FromString("00%")), v1alpha1.RollingUpdateSidecarSetStrategyType))
	assert.Empty(t, of(new(intstr.FromInt32(0)), v1alpha1.NotUpdateSidecarSetStrategyType), "no rollout is wanted")
	assert.Empty(t, of(nil, ""))
	assert.Empty(t, of(new(intstr.FromInt32(10)), ""))
	assert.Empty(t, of(new(intstr.FromString("1%")), ""))
}
