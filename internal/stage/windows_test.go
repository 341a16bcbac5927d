package stage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

func during(windows ...protocol.Window) *protocol.Stage {
	return &protocol.Stage{Policy: "edge", Steps: 1, Step: &protocol.Step{Windows: windows}}
}

// Clocks in Berlin are set forward on 2026-03-29 at 02:00, and back on 2026-10-25 at 03:00.
func TestSpec11_8_WindowsFollowTheWallClock(t *testing.T) {
	office := protocol.Window{Schedule: "0 9 * * 1-5", Duration: 8 * time.Hour, TimeZone: "Europe/Berlin"}
	night := protocol.Window{Schedule: "30 2 * * *", Duration: time.Hour, TimeZone: "Europe/Berlin"}
	saturday := protocol.Window{Schedule: "0 22 * * 6", Duration: 12 * time.Hour, TimeZone: "Europe/Berlin"}
	// Clocks skip the first hour of Friday 2026-04-24 in Cairo, and of Sunday 2026-09-06 in Santiago.
	cairo := protocol.Window{Schedule: "0 9 * * 5", Duration: time.Hour, TimeZone: "Africa/Cairo"}
	santiago := protocol.Window{Schedule: "0 9 * * 6", Duration: time.Hour, TimeZone: "America/Santiago"}
	never := protocol.Window{Schedule: "0 0 30 2 *", Duration: time.Hour}
	for _, c := range []struct {
		name    string
		windows []protocol.Window
		now     string
		open    bool
		opens   string
	}{
		{"no windows", nil, "2026-01-03T12:00:00Z", true, ""},
		{"winter: the moment before", []protocol.Window{office}, "2026-01-05T07:59:59Z", false, "2026-01-05T08:00:00Z"},
		{"winter: the start", []protocol.Window{office}, "2026-01-05T08:00:00Z", true, ""},
		{"winter: the last moment", []protocol.Window{office}, "2026-01-05T15:59:59Z", true, ""},
		{"winter: the end", []protocol.Window{office}, "2026-01-05T16:00:00Z", false, "2026-01-06T08:00:00Z"},
		{"summer: the start", []protocol.Window{office}, "2026-07-06T07:00:00Z", true, ""},
		{"summer: the end", []protocol.Window{office}, "2026-07-06T15:00:00Z", false, "2026-07-07T07:00:00Z"},
		{"a weekend, over the change to summer", []protocol.Window{office}, "2026-03-28T12:00:00Z", false, "2026-03-30T07:00:00Z"},
		{"a weekend, over the change to winter", []protocol.Window{office}, "2026-10-24T12:00:00Z", false, "2026-10-26T08:00:00Z"},
		{"the start is skipped", []protocol.Window{night}, "2026-03-29T01:30:00Z", false, "2026-03-30T00:30:00Z"},
		{"the start occurs for the first time", []protocol.Window{night}, "2026-10-25T00:30:00Z", true, ""},
		{"the start occurs for the second time", []protocol.Window{night}, "2026-10-25T01:45:00Z", true, ""},
		{"a duration over the change is absolute", []protocol.Window{saturday}, "2026-03-29T08:59:59Z", true, ""},
		{"after a duration over the change", []protocol.Window{saturday}, "2026-03-29T09:00:00Z", false, "2026-04-04T20:00:00Z"},
		{"one of two windows", []protocol.Window{office, saturday}, "2026-01-03T23:00:00Z", true, ""},
		{"the next of two windows", []protocol.Window{office, saturday}, "2026-01-03T12:00:00Z", false, "2026-01-03T21:00:00Z"},
		{"a skipped midnight skips no window", []protocol.Window{cairo}, "2026-04-20T00:00:00Z", false, "2026-04-24T06:00:00Z"},
		{"a skipped midnight adds no window", []protocol.Window{santiago}, "2026-09-06T02:00:00Z", false, "2026-09-12T12:00:00Z"},
		{"no window ever opens", []protocol.Window{never}, "2026-01-03T12:00:00Z", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, c.now)
			require.NoError(t, err)
			open, opens, err := Open(during(c.windows...), now)
			require.NoError(t, err)
			assert.Equal(t, c.open, open)
			if c.opens == "" {
				assert.Zero(t, opens)
			} else {
				assert.Equal(t, c.opens, opens.UTC().Format(time.RFC3339))
			}
		})
	}
}

func TestSpec11_8_InvalidWindowsAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		window protocol.Window
		field  string
		says   string
	}{
		"schedule": {protocol.Window{Schedule: "61 9 * * *"}, "schedule", `RolloutPolicy edge: windows[0]: schedule "61 9 * * *"`},
		"interval": {protocol.Window{Schedule: "@every 1h"}, "schedule", `RolloutPolicy edge: windows[0]: schedule "@every 1h": an interval has no start on a clock`},
		"timeZone": {protocol.Window{Schedule: "0 9 * * *", TimeZone: "Europe/Atlantis"}, "timeZone", "RolloutPolicy edge: windows[0]: timeZone: unknown time zone Europe/Atlantis"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Closed(during(c.window), time.Now())
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, "edge", InvalidPolicy("fails: "+err.Error()))
			written := outriggerv1.RolloutWindow{Schedule: c.window.Schedule, TimeZone: c.window.TimeZone}
			require.ErrorContains(t, CheckWindows([]outriggerv1.RolloutWindow{{Schedule: "0 9 * * *"}, written}), "windows[1]: "+c.field)
		})
	}
}

func TestSpec11_8_OtherErrorsNameNoInvalidPolicy(t *testing.T) {
	for _, message := range []string{"", "RolloutPolicy edge: gone", "no RolloutPolicy selects it: windows[0]", "windows[0]: x"} {
		assert.Empty(t, InvalidPolicy(message), message)
	}
}

func TestSpec11_8_ClosedWindowsAreDescribed(t *testing.T) {
	now := time.Date(2026, 1, 3, 12, 0, 0, 0, time.UTC)
	message, opens, err := Closed(during(protocol.Window{Schedule: "0 9 * * 1-5", Duration: time.Hour}), now)
	require.NoError(t, err)
	assert.Equal(t, "outside the windows of RolloutPolicy edge until 2026-01-05T09:00:00Z", message)
	assert.Equal(t, time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC), *opens)
	message, opens, err = Closed(during(protocol.Window{Schedule: "0 0 30 2 *", Duration: time.Hour}), now)
	require.NoError(t, err)
	assert.Equal(t, "outside the windows of RolloutPolicy edge, none of which opens again", message)
	assert.Nil(t, opens)
	message, _, err = Closed(nil, now)
	require.NoError(t, err)
	assert.Empty(t, message)
}
