package figures

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Lines are figures, one a line, so that runs can be compared by diff.
type Lines struct{ out strings.Builder }

// Add adds a figure.
func (l *Lines) Add(name, format string, args ...any) {
	fmt.Fprintf(&l.out, "%-52s "+format+"\n", append([]any{name}, args...)...)
}

// Seconds adds a duration.
func (l *Lines) Seconds(name string, d time.Duration) { l.Add(name, "%.1f", d.Seconds()) }

// Each adds a figure for each key, sorted, as "name, key".
func (l *Lines) Each(name, format string, figures map[string]float64) {
	for _, key := range slices.Sorted(maps.Keys(figures)) {
		l.Add(name+", "+key, format, figures[key])
	}
}

// String implements fmt.Stringer.
func (l *Lines) String() string { return l.out.String() }
