package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Teller prints a story: a line for each step, with the seconds since the start.
// A reader who has gone is no reason to fail.
type Teller struct {
	Out io.Writer

	verbose bool
	began   time.Time
	mu      sync.Mutex
}

// NewTeller starts the clock. A verbose one prints details too.
func NewTeller(out io.Writer, verbose bool) *Teller {
	return &Teller{Out: out, verbose: verbose, began: time.Now()}
}

// Step prints a line.
func (t *Teller) Step(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(t.Out, "%6.1f s  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
}

// Detail prints what only some want to read.
func (t *Teller) Detail(format string, args ...any) {
	if !t.verbose {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n          ")
	_, _ = fmt.Fprintf(t.Out, "          %s\n", text)
}
