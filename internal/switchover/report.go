package switchover

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/outrigger/outrigger/internal/rollout"
)

// Effect is the severity of a finding.
type Effect string

// The effects are declared from the most severe to the least severe.
const (
	// Blocks means that the finding must be fixed before the switchover. Otherwise, pods would be
	// upgraded, rejected or not managed.
	Blocks Effect = "blocks"
	// Differs means that Outrigger behaves differently from OpenKruise, or continues a rollout.
	Differs Effect = "differs"
	// Note means that no action is needed.
	Note Effect = "note"
)

// Finding is one result of a check.
type Finding struct {
	Effect Effect `json:"effect"`
	// Topic is a short name, such as hash or injection.
	Topic string `json:"topic"`
	// Object is <kind>/<name>, with the namespace before the name if there is one.
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
	// Remedy is a shell command, or empty.
	Remedy string `json:"remedy,omitempty"`
}

// Answerer is a webhook that the API server calls for pods or SidecarSets.
type Answerer struct {
	// About is the resource: pods or sidecarsets.
	About string `json:"about"`
	// Whose is the owner of the webhook, OpenKruise or Outrigger.
	Whose         string `json:"whose"`
	Kind          string `json:"kind"`
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	// FailurePolicy is Fail or Ignore.
	FailurePolicy string `json:"failurePolicy"`
}

// Report is the result of a check.
type Report struct {
	Sets int `json:"sets"`
	// Pods is the number of active pods with sidecars.
	Pods int `json:"pods"`
	// Matched is the number of pairs of an active pod and a SidecarSet that matches the pod.
	// Updated is the number of these pairs that need no upgrade.
	Matched   int        `json:"matched"`
	Updated   int        `json:"updated"`
	Answerers []Answerer `json:"answerers"`
	// Findings are sorted by effect, the most severe first.
	Findings []Finding `json:"findings"`
}

// Blocked returns the number of findings with effect Blocks.
func (r *Report) Blocked() (n int) {
	for i := range r.Findings {
		if r.Findings[i].Effect == Blocks {
			n++
		}
	}
	return n
}

func (r *Report) sort() {
	order := map[Effect]int{Blocks: 0, Differs: 1, Note: 2}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(order[a.Effect], order[b.Effect])
	})
}

// Write writes the report as text, and returns the error of out.
func (r *Report) Write(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s; %s with sidecars, %d of %d up to date\n", rollout.Count(r.Sets, "SidecarSet"), rollout.Count(r.Pods, "pod"), r.Updated, r.Matched)
	r.writeAnswerers(&text)
	headings := map[Effect]string{Blocks: "Blockers", Differs: "Differences", Note: "Notes"}
	for i := range r.Findings {
		f := &r.Findings[i]
		if i == 0 || f.Effect != r.Findings[i-1].Effect {
			fmt.Fprintf(&text, "\n%s\n", headings[f.Effect])
		}
		writeFinding(&text, f)
	}
	fmt.Fprintf(&text, "\n%s\n", r.Verdict())
	_, err := io.WriteString(out, text.String())
	return err
}

// Verdict returns the result of the report in one sentence.
func (r *Report) Verdict() string {
	if r.Blocked() == 0 {
		return "No blockers."
	}
	return rollout.Count(r.Blocked(), "blocker") + "."
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
	text.WriteString("\nWebhooks\n")
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	for _, a := range r.Answerers {
		_, _ = fmt.Fprintf(table, "- %s\t%s\t%s\t%s\t%s\t%s\n", a.About, a.Whose,
			strings.ToLower(strings.TrimSuffix(a.Kind, "WebhookConfiguration")), a.Webhook, a.Configuration, a.FailurePolicy)
	}
	_ = table.Flush()
}
