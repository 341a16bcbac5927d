package stage

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the container images contain no time zone database

	"github.com/robfig/cron/v3"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// Open reports whether one of the windows of a step is open (SPEC §11.8). Without windows, open is always true.
// If no window is open, opens is the time of the next opening, or zero if no window opens again. Open returns
// an error if a window is invalid.
//
// A schedule is evaluated on the wall clock of its time zone, and a duration is absolute. If the change to
// daylight-saving time skips the start of a window, the window does not open on this day. If the start occurs
// twice because the clock is set back, the window opens twice.
func Open(s *protocol.Stage, now time.Time) (open bool, opens time.Time, err error) {
	if !s.Limits() || len(s.Step.Windows) == 0 {
		return true, time.Time{}, nil
	}
	for i, window := range s.Step.Windows {
		begin, err := firstBegin(window, now)
		switch {
		case err != nil:
			return false, time.Time{}, fmt.Errorf("RolloutPolicy %s: windows[%d]: %w", s.Policy, i, err)
		case begin.IsZero():
		case !begin.After(now):
			return true, time.Time{}, nil
		case opens.IsZero() || begin.Before(opens):
			opens = begin
		}
	}
	return false, opens, nil
}

// CheckWindows returns an error if a window of a RolloutPolicy has an invalid schedule or time zone.
func CheckWindows(windows []outriggerv1.RolloutWindow) error {
	for i, window := range windows {
		if err := CheckWindow(window); err != nil {
			return fmt.Errorf("windows[%d]: %w", i, err)
		}
	}
	return nil
}

// CheckWindow returns an error if a window has an invalid schedule or time zone.
func CheckWindow(window outriggerv1.RolloutWindow) error {
	_, err := firstBegin(protocol.Window{Schedule: window.Schedule, TimeZone: window.TimeZone}, time.Time{})
	return err
}

// InvalidPolicy returns the name of the RolloutPolicy in message, the text of an error about an invalid
// window. The result is empty for any other error.
func InvalidPolicy(message string) string {
	_, rest, _ := strings.Cut(message, "RolloutPolicy ")
	policy, _, ok := strings.Cut(rest, ": windows[")
	if !ok || strings.Contains(policy, " ") {
		return ""
	}
	return policy
}

// firstBegin returns the earliest start of the window whose end is after now, or zero if the window does not
// open again. The window is open if this start is not after now.
func firstBegin(window protocol.Window, now time.Time) (time.Time, error) {
	zone, err := time.LoadLocation(window.TimeZone)
	if err != nil {
		return time.Time{}, fmt.Errorf("timeZone: %w", err)
	}
	parsed, err := cron.ParseStandard(window.Schedule)
	if err != nil {
		return time.Time{}, fmt.Errorf("schedule %q: %w", window.Schedule, err)
	}
	schedule, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return time.Time{}, fmt.Errorf("schedule %q: an interval has no start on a clock; use a cron expression of five fields", window.Schedule)
	}
	return next(schedule, zone, now.Add(-window.Duration)), nil
}

// next returns the first time of a schedule after a time, on the wall clock of a zone, or zero. The schedule is
// evaluated in UTC, because the cron library adds or skips days in zones whose clocks skip midnight.
func next(schedule *cron.SpecSchedule, zone *time.Location, after time.Time) (first time.Time) {
	schedule.Location = time.UTC
	earlier, _ := offsets(after, zone)
	for wall := after.UTC().Add(earlier); ; {
		if wall = schedule.Next(wall); wall.IsZero() {
			return first
		}
		smallest, largest := offsets(wall, zone)
		if !first.IsZero() && !wall.Add(-largest).Before(first) {
			return first
		}
		for _, offset := range []time.Duration{largest, smallest} {
			at := wall.Add(-offset).In(zone)
			if _, seconds := at.Zone(); time.Duration(seconds)*time.Second == offset && at.After(after) && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
}

// offsets returns the offsets of a zone from UTC one day before and one day after a time. The offsets differ only
// if the offset of the zone changes in this period.
func offsets(around time.Time, zone *time.Location) (smallest, largest time.Duration) {
	_, before := around.Add(-24 * time.Hour).In(zone).Zone()
	_, after := around.Add(24 * time.Hour).In(zone).Zone()
	return time.Duration(min(before, after)) * time.Second, time.Duration(max(before, after)) * time.Second
}

// Closed returns a message for users if no window is open. The message is empty if a window is open. opens is
// the time of the next opening, or nil.
func Closed(s *protocol.Stage, now time.Time) (message string, opens *time.Time, err error) {
	open, at, err := Open(s, now)
	switch {
	case err != nil || open:
		return "", nil, err
	case at.IsZero():
		return "outside the windows of RolloutPolicy " + s.Policy + ", none of which opens again", nil, nil
	}
	return fmt.Sprintf("outside the windows of RolloutPolicy %s until %s", s.Policy, at.UTC().Format(time.RFC3339)), new(at.UTC()), nil
}
