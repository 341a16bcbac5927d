package switchover

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Write writes the report for people.
func (r *Report) Write(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s; %s with sidecars, %d of %d up to date\n", plural(r.Sets, "SidecarSet"), plural(r.Pods, "pod"), r.Updated, r.Matched)
	r.writeAnswerers(&text)
	for _, effect := range []Effect{Blocks, Differs, Note} {
		if r.count(effect) == 0 {
			continue
		}
		fmt.Fprintf(&text, "\n%s\n", heading(effect))
		for i := range r.Findings {
			if f := &r.Findings[i]; f.Effect == effect {
				writeFinding(&text, f)
			}
		}
	}
	fmt.Fprintf(&text, "\n%s\n", r.Verdict())
	_, err := io.WriteString(out, text.String())
	return err
}

// Verdict is the report in one sentence.
func (r *Report) Verdict() string {
	switch n := r.Blocked(); n {
	case 0:
		return "Nothing is in the way."
	case 1:
		return "1 thing is in the way."
	default:
		return fmt.Sprintf("%d things are in the way.", n)
	}
}

func heading(effect Effect) string {
	return map[Effect]string{Blocks: "In the way", Differs: "What differs", Note: "Good to know"}[effect]
}

func writeFinding(text *strings.Builder, f *Finding) {
	object := ""
	if f.Object != "" {
		object = f.Object + ": "
	}
	fmt.Fprintf(text, "- %s: %s%s\n", f.Topic, object, f.Message)
	if f.Remedy != "" {
		fmt.Fprintf(text, "    %s\n", f.Remedy)
	}
}

func (r *Report) writeAnswerers(text *strings.Builder) {
	if len(r.Answerers) == 0 {
		return
	}
	text.WriteString("\nWho is asked\n")
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	for _, a := range r.Answerers {
		// A strings.Builder takes everything.
		_, _ = fmt.Fprintf(table, "- %s\t%s\t%s\t%s\t%s\t%s\n", a.About, a.Whose,
			strings.ToLower(strings.TrimSuffix(a.Kind, "WebhookConfiguration")), a.Webhook, a.Configuration, a.FailurePolicy)
	}
	_ = table.Flush()
}
