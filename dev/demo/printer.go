package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Printer prints a line for each step, with the seconds since the start. Errors of the writer are
// ignored, so that the demo continues without a reader.
type Printer struct {
	Out io.Writer

	verbose bool
	began   time.Time
	mu      sync.Mutex
}

// NewPrinter returns a Printer whose time starts now. A verbose Printer also prints details.
func NewPrinter(out io.Writer, verbose bool) *Printer {
	return &Printer{Out: out, verbose: verbose, began: time.Now()}
}

// Step prints a line.
func (p *Printer) Step(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.Out, "%6.1f s  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// Detail prints a line in verbose mode only.
func (p *Printer) Detail(format string, args ...any) {
	if !p.verbose {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n          ")
	_, _ = fmt.Fprintf(p.Out, "          %s\n", text)
}
