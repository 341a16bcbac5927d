package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// FreezeEnd contains the flags for the end of a freeze.
type FreezeEnd struct {
	until    string
	duration time.Duration
	changed  func(flag string) bool
}

// AddTo adds the flags --until and --for to flags.
func (e *FreezeEnd) AddTo(flags *pflag.FlagSet) {
	flags.StringVar(&e.until, "until", "", "`time` at which the freeze ends, such as 2026-11-28T00:00:00Z")
	flags.DurationVar(&e.duration, "for", 0, "time after which the freeze ends, such as 2h")
	e.changed = flags.Changed
}

// Time returns the end of the freeze, or nil for a freeze without an end. The end is rounded up to whole
// seconds, because the times in objects have whole seconds. If a user sets a flag to an empty value, Time
// returns an error.
func (e *FreezeEnd) Time(now time.Time) (*time.Time, error) {
	set := func(flag string, set bool) bool { return set || e.changed != nil && e.changed(flag) }
	hasUntil, hasFor := set("until", e.until != ""), set("for", e.duration != 0)
	end := now.Add(e.duration)
	switch {
	case hasUntil && hasFor:
		return nil, errors.New("use either --until or --for")
	case hasFor && e.duration <= 0:
		return nil, errors.New("--for must be positive, for example 2h")
	case hasUntil:
		var err error
		if end, err = time.Parse(time.RFC3339, e.until); err != nil {
			return nil, fmt.Errorf("--until %q is not a time such as %s: use this format, or a duration such as --for 2h", e.until, now.Add(2*time.Hour).UTC().Format(time.RFC3339))
		}
		if !end.After(now) {
			return nil, fmt.Errorf("--until %s has passed; now it is %s", e.until, now.UTC().Format(time.RFC3339))
		}
	case !hasFor:
		return nil, nil //nolint:nilnil // a freeze without an end
	}
	end = end.Add(time.Second - time.Nanosecond).Truncate(time.Second).UTC()
	return &end, nil
}
