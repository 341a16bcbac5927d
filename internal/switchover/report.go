package switchover

import (
	"cmp"
	"slices"
)

// Effect is how much a finding matters.
type Effect string

// The effects, the gravest first.
const (
	// Blocks must be mended first: pods would be upgraded, refused or forgotten.
	Blocks Effect = "blocks"
	// Differs is what Outrigger does in another way, or goes on with.
	Differs Effect = "differs"
	// Note is good to know.
	Note Effect = "note"
)

// Finding is one thing that was found.
type Finding struct {
	Effect Effect `json:"effect"`
	// Topic is what it is about, such as hash or injection.
	Topic string `json:"topic"`
	// Object is <kind>/<name>, with the namespace before the name if there is one.
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
	// Remedy is a shell command, where one is known.
	Remedy string `json:"remedy,omitempty"`
}

// Answerer is a webhook that the API server asks about pods or SidecarSets.
type Answerer struct {
	// About is pods or sidecarsets.
	About string `json:"about"`
	// Whose is OpenKruise or Outrigger.
	Whose         string `json:"whose"`
	Kind          string `json:"kind"`
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	// FailurePolicy says what happens to a request when nobody answers.
	FailurePolicy string `json:"failurePolicy"`
}

// Report is what a check found.
type Report struct {
	Sets int `json:"sets"`
	// Pods are the active ones that hold sidecars.
	Pods int `json:"pods"`
	// Matched are the pairs of such a pod and a set that matches it; Updated are
	// those of them that need no upgrade.
	Matched   int        `json:"matched"`
	Updated   int        `json:"updated"`
	Answerers []Answerer `json:"answerers"`
	// Findings are sorted, the gravest first.
	Findings []Finding `json:"findings"`
}

// Blocked is how many findings are in the way.
func (r *Report) Blocked() int { return r.count(Blocks) }

func (r *Report) count(effect Effect) (n int) {
	for i := range r.Findings {
		if r.Findings[i].Effect == effect {
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
