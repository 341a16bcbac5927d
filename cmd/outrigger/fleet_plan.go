package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/temporal"
)

// plan prints the stages of the rollout of a SidecarSet, even if no member has reported the SidecarSet.
func (f *fleetCommand) plan(ctx context.Context, c client.Client, args []string, out io.Writer) error {
	registry, err := temporal.FleetRegistry(ctx, c)
	if err != nil {
		return err
	}
	state, err := temporal.FleetRollout(ctx, c, args[0])
	if err != nil && !temporal.IsNotFound(err) {
		return err
	}
	state.Set = args[0]
	preview := fleet.Plan(&state, &registry, time.Now())
	if f.output.Structured() {
		return f.output.Write(out, preview)
	}
	return printPlan(out, &preview)
}

func printPlan(out io.Writer, p *fleet.Preview) error {
	headline := "no rollout in progress"
	if p.Hash != "" {
		headline = fmt.Sprintf("%s, content %s, attempt %d", p.Phase, p.Hash, p.Attempt)
	}
	headline = fmt.Sprintf("%s: %s, policy %s\n", p.Set, headline, cmp.Or(p.Policy, "none"))
	if p.Message != "" {
		headline += "  " + view.OneLine(p.Message) + "\n"
	}
	if freeze := p.Freeze; freeze != nil {
		headline += fmt.Sprintf("  frozen by %s: %s (%s)\n", view.OneLine(cmp.Or(freeze.By, "unknown")), view.OneLine(freeze.Reason), untilOf(freeze.Until))
	}
	if _, err := io.WriteString(out, headline); err != nil {
		return err
	}
	var stages, clusters [][]string
	for i := range p.Stages {
		stage := &p.Stages[i]
		completed := fmt.Sprintf("%d/%d", stage.Completed, len(stage.Clusters))
		stages = append(stages, []string{"  " + stage.Title(), string(stage.State), completed, stage.Places(), cmp.Or(stage.Bake, "-"), cmp.Or(stage.GateWords(), "-"), cmp.Or(stage.Approval, "-"), cmp.Or(stage.WaitsFor, "-")})
		for _, cluster := range stage.Clusters {
			content := "reported"
			switch {
			case p.Hash == "":
				content = cmp.Or(cluster.Hash, "-")
			case cluster.Hash != p.Hash:
				content = "not reported"
			}
			clusters = append(clusters, []string{"  " + stage.Title(), cmp.Or(cluster.Name, "-"), string(cluster.State), content})
		}
	}
	if err := printTable(out, []string{"  STAGE", "STATE", "COMPLETED", "AT ONCE", "BAKE", "GATES", "APPROVAL", "WAITS FOR"}, stages); err != nil {
		return err
	}
	return printTable(out, []string{"\n  STAGE", "CLUSTER", "STATE", "CONTENT"}, clusters)
}

func untilOf(until *time.Time) string {
	if until == nil {
		return "until unfreeze"
	}
	return "until " + timeOf(*until)
}

func (f *fleetCommand) history(ctx context.Context, c client.Client, args []string, out io.Writer) error {
	state, err := temporal.FleetRollout(ctx, c, args[0])
	if err != nil {
		return err
	}
	history := fleet.HistoryOf(&state)
	if f.output.Structured() {
		return f.output.Write(out, history)
	}
	return printHistory(out, &history)
}

// printHistory prints events and verdicts, the newest last.
func printHistory(out io.Writer, h *fleet.History) error {
	var events, contents [][]string
	for _, event := range h.Events {
		events = append(events, []string{timeOf(event.Time), cmp.Or(event.Hash, "-"), event.What, cmp.Or(event.Stage, "-"), cmp.Or(event.Cluster, "-"), cmp.Or(event.By, "-"), event.Reason})
	}
	for _, content := range h.Contents {
		contents = append(contents, []string{content.Hash, string(content.Phase)})
	}
	if err := printTable(out, []string{"TIME", "CONTENT", "WHAT", "STAGE", "CLUSTER", "BY", "REASON"}, events); err != nil {
		return err
	}
	return printTable(out, []string{"\nCONTENT", "VERDICT"}, contents)
}
