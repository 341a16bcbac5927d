package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTheIntervalAfterAPlan(t *testing.T) {
	for _, c := range []struct {
		name       string
		took, want time.Duration
	}{
		{"few pods", 100 * time.Microsecond, MinInterval},
		{"ten thousand pods: one part in ten", 15 * time.Millisecond, 135 * time.Millisecond},
		{"free slots wait no longer than that", 30 * time.Millisecond, 250 * time.Millisecond},
		{"a million pods: one part in four", 400 * time.Millisecond, 1200 * time.Millisecond},
	} {
		assert.Equal(t, c.want, Interval(c.took), c.name)
	}
}
