package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

const (
	// fleetSet and fleetDeployment are the SidecarSet and the Deployment of each cluster of a fleet.
	fleetSet        = "a"
	fleetDeployment = "web"
	fleetPods       = 5
	// unreachableAfter and bakeTime are the values in fleetpolicy.yaml.
	unreachableAfter = 20 * time.Second
	bakeTime         = 5 * time.Second
	// deliveredWithin is the maximum delay between the edits of two clusters with the same content.
	// supersededWithin is the maximum delay before newer content is delivered in the same round.
	deliveredWithin  = 3 * time.Second
	supersededWithin = 15 * time.Second
	// Remove is the kind of the fault that removes a cluster from the fleet and adds the cluster again.
	Remove Kind = "remove"
	// CutTemporal is the kind of the fault that cuts a cluster off from Temporal.
	CutTemporal Kind = "cut-temporal"
)

//go:embed fleetpolicy.yaml
var fleetPolicy string

// fleetStages returns the stages of fleetpolicy.yaml.
func fleetStages() []observer.FleetStage {
	return []observer.FleetStage{
		{Clusters: []string{"canary"}, Bake: bakeTime}, {Clusters: []string{"eu-1", "eu-2"}, Bake: bakeTime}, {Clusters: []string{"rest"}},
	}
}

// chaoticFleet is a fleet whose clusters share the Temporal of the first cluster.
type chaoticFleet struct {
	dir     string
	out     io.Writer
	random  *rand.Rand
	order   *observer.Fleet
	members []*fixture
}

func fleetCommand() *cobra.Command {
	var seed uint64
	var rounds int
	var calm bool
	cmd := &cobra.Command{
		Use: "fleet", Short: "Disturb a fleet of four clusters and check the order of its rollouts", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, random := cmd.OutOrStdout(), rand.New(rand.NewPCG(seed, 0))
			report := func(v observer.Violation) { _, _ = fmt.Fprintf(out, "VIOLATION: %s\n", v) }
			order := observer.NewFleet(fleetSet, "side-"+fleetSet, "side-"+fleetSet+":v1", fleetStages(), report)
			return inFolder(fmt.Sprintf("seed %d, %d rounds", seed, rounds), func(dir string) error {
				f := &chaoticFleet{dir: dir, out: out, random: random, order: order}
				return f.run(cmd.Context(), fleetFaults(random, rounds, calm))
			})
		},
	}
	cmd.Flags().Uint64Var(&seed, "seed", 1, "draw the order of deliveries and the faults from this")
	cmd.Flags().IntVar(&rounds, "rounds", 10, "how many contents are rolled out")
	cmd.Flags().BoolVar(&calm, "calm", false, "inject no faults")
	return cmd
}

// fleetFaults returns the fault of each round. Each kind of fault occurs once before a kind occurs again. The
// Target of a fault is a process, a link or a Deployment. The Draw of a fault selects the cluster.
func fleetFaults(random *rand.Rand, rounds int, calm bool) []Fault {
	const s = time.Second
	kinds := []Fault{
		{Kind: Kill, Target: cluster.Worker, For: s}, {Kind: Kill, Target: cluster.Operator, For: s}, {Kind: Kill, Target: cluster.Webhook, For: s},
		{Kind: Kill, Target: cluster.APIServer, For: 2 * s}, {Kind: Kill, Target: cluster.Etcd, For: s}, {Kind: Kill, Target: cluster.Temporal, For: 3 * s},
		{Kind: CutTemporal, Target: "fleet", For: unreachableAfter + 10*s}, {Kind: Remove, Target: "member", For: 15 * s},
		{Kind: Delay, Target: "operator/apiserver", For: 20 * s, Value: "1s"}, {Kind: DeletePods, Target: fleetDeployment, Pods: 2},
	}
	faults := make([]Fault, 0, rounds)
	for i := range rounds {
		if i%len(kinds) == 0 {
			random.Shuffle(len(kinds), func(a, b int) { kinds[a], kinds[b] = kinds[b], kinds[a] })
		}
		fault := kinds[i%len(kinds)]
		if calm {
			fault = Fault{}
		}
		fault.Number, fault.At, fault.Draw = i+1, time.Duration(random.Int64N(int64(20*s))).Round(s/10), random.Uint64()
		if fault.Kind == CutTemporal {
			fault.At /= 4 // An early fault cuts the connection before most clusters begin the rollout.
		}
		faults = append(faults, fault)
	}
	return faults
}

// run starts the fleet and carries out the rounds. If a rule was violated, run returns an error.
func (f *chaoticFleet) run(ctx context.Context, faults []Fault) (err error) {
	defer func() {
		for i := len(f.members) - 1; i >= 0; i-- {
			f.members[i].close()
		}
	}()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, stage := range fleetStages() {
		for _, name := range stage.Clusters {
			if err := f.startMember(ctx, name); err != nil {
				return fmt.Errorf("start cluster %s: %w", name, err)
			}
		}
	}
	// Without a policy, the fleet gives no permits. Therefore, the policy is applied before members report
	// content.
	if err := f.command(ctx, fleetPolicy, "apply", "-f", "-"); err != nil {
		return err
	}
	err = f.each(func(m *fixture) error {
		return m.populate(ctx, []string{fleetSet}, []string{fleetDeployment}, fleetPods)
	})
	if err != nil {
		return err
	}
	if err := f.command(ctx, "", throughCommand()...); err != nil {
		return err
	}
	for _, fault := range faults {
		if err = f.round(ctx, fault); err != nil {
			err = fmt.Errorf("round %d, %s: %w", fault.Number, fault, err)
			break
		}
	}
	checked, violations := f.order.Totals()
	for _, m := range f.members {
		violations += m.observer.Totals().Violations
	}
	if violations > 0 {
		err = errors.Join(fmt.Errorf("%d violations", violations), err)
	}
	f.members[0].say("%d rounds, the order of %d rollouts in clusters checked, %d violations", len(faults), checked, violations)
	return err
}

// startMember starts a cluster and its observers. The clusters start one after the other, because each start
// uses all CPUs of the machine.
func (f *chaoticFleet) startMember(ctx context.Context, name string) error {
	options := cluster.Options{Nodes: 1, Temporal: cluster.DevServer}
	if len(f.members) > 0 {
		options.WithoutTemporal, options.TemporalAddress = true, f.members[0].TemporalAddress
	}
	var m *fixture
	m, err := newFixture(ctx, options, name, filepath.Join(f.dir, name), f.out, func(v observer.Violation) { m.say("VIOLATION: %s", v) })
	if err != nil {
		return err
	}
	f.members = append(f.members, m)
	m.began = f.members[0].began
	m.watch(ctx)
	go f.order.Run(ctx, name, m.EtcdURL())
	for _, role := range []string{cluster.Operator, cluster.Webhook} {
		if err := m.startRole(ctx, role, "--fleet"); err != nil {
			return err
		}
	}
	stage, _, _ := strings.Cut(name, "-")
	return m.startRole(ctx, cluster.Worker, "--fleet", "--fleet-cluster-name="+name, "--fleet-cluster-labels=stage="+stage)
}

// round delivers content to the clusters in random order, injects a fault at the same time, and waits until the
// rollout of the content has completed in all clusters.
func (f *chaoticFleet) round(ctx context.Context, fault Fault) error {
	began := time.Now()
	target := f.members[fault.Draw%uint64(len(f.members))]
	target.say("round %s", fault)
	var disturbing errgroup.Group
	disturbing.Go(func() error {
		last(ctx, Fault{For: fault.At})
		return f.disturb(ctx, target, fault)
	})
	// The cluster may be unreachable during the fault and for some time afterwards.
	defer f.order.Away(target.name, fault.At+unreachableAfter)()
	tag := fmt.Sprintf("v%d", fault.Number+1)
	if err := f.deliver(ctx, tag); err != nil {
		return err
	}
	if f.random.IntN(3) == 0 { // Newer content supersedes the delivered content before the last stage.
		last(ctx, Fault{For: time.Duration(f.random.Int64N(int64(supersededWithin)))})
		tag += "b"
		if err := f.deliver(ctx, tag); err != nil {
			return err
		}
	}
	if err := disturbing.Wait(); err != nil {
		return err
	}
	err := f.each(func(m *fixture) error { return m.converge(ctx, fleetPods) })
	if through := f.command(ctx, "", throughCommand()...); err != nil || through != nil {
		return errors.Join(err, through)
	}
	target.say("round #%d: all clusters have %s after %.0f s", fault.Number, tag, time.Since(began).Seconds())
	return nil
}

// deliver changes the image in all clusters, in random order and with random delays.
func (f *chaoticFleet) deliver(ctx context.Context, tag string) error {
	for _, i := range f.random.Perm(len(f.members)) {
		if err := f.members[i].edit(ctx, fleetSet, image(fleetSet, tag)); err != nil {
			return fmt.Errorf("deliver %s to cluster %s: %w", tag, f.members[i].name, err)
		}
		last(ctx, Fault{For: time.Duration(f.random.Int64N(int64(deliveredWithin)))})
	}
	return nil
}

// disturb injects a fault into a cluster, and returns when the fault has ended.
func (f *chaoticFleet) disturb(ctx context.Context, m *fixture, fault Fault) error {
	switch {
	case fault.Kind == "":
		return nil
	case fault.Kind == CutTemporal:
		var both errgroup.Group
		for _, target := range []string{"worker/temporal", "operator/temporal"} {
			both.Go(func() error { return m.disturb(ctx, Fault{Kind: Cut, Target: target, For: fault.For}) })
		}
		return both.Wait()
	case fault.Kind == Remove:
		back := f.order.Away(m.name, 0)
		defer back()
		if err := f.command(ctx, "", "remove", m.name); err != nil {
			return err
		}
		last(ctx, fault)
		// A worker announces its cluster at startup, so the restarted worker adds the cluster again.
		return m.disturb(ctx, Fault{Kind: Kill, Target: cluster.Worker})
	case fault.Target == cluster.Temporal:
		m = f.members[0]
	}
	return m.disturb(ctx, fault)
}

// each calls do for all members in parallel.
func (f *chaoticFleet) each(do func(*fixture) error) error {
	var all errgroup.Group
	for _, m := range f.members {
		all.Go(func() error {
			if err := do(m); err != nil {
				return fmt.Errorf("cluster %s: %w", m.name, err)
			}
			return nil
		})
	}
	return all.Wait()
}

// throughCommand returns the arguments of the command that waits until the content of the fleet has completed
// all stages.
func throughCommand() []string { return []string{"status", fleetSet, "--watch", "--timeout=2m"} }

// command runs a subcommand of outrigger fleet.
func (f *chaoticFleet) command(ctx context.Context, stdin string, args ...string) error {
	_, err := f.members[0].command(ctx, stdin, "outrigger", append([]string{"fleet"}, args...)...)
	return err
}
