package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

const (
	fleetSet  = "edge-proxy"
	fleetPods = 4
)

// fleetDemo shows a rollout across three clusters that use one Temporal.
type fleetDemo struct {
	demo
	dir     string
	members []*fleetMember
	page    string
	// ended is the hash of the content whose rollout was read last.
	ended string
}

// fleetMember is a cluster of the fleet. The name of the cluster is also the name of the stage.
type fleetMember struct {
	demo
	name string
}

func fleetDemoCommand(at *stateDir) *cobra.Command {
	d := &fleetDemo{}
	return d.command("fleet-demo", "Start three clusters and show a rollout over them; Ctrl-C ends it", func(ctx context.Context) error {
		d.dir = filepath.Join(string(*at), "fleet")
		socket, err := stateDir(d.dir).listen(ctx)
		if errors.Is(err, errUp) {
			return errors.New("a fleet demo runs already; end it with Ctrl-C in its terminal")
		}
		if err != nil {
			return err
		}
		defer func() { _ = socket.Close() }()
		go accept(socket, rpc.NewServer()) // A control command receives an error, and does not wait forever.
		defer d.shutdown()
		if err = show(ctx, d.start, d.install, d.rollOut, d.stop); d.Cluster == nil {
			return err // No cluster has started.
		}
		return d.stay(ctx, err, "bin/outrigger fleet --temporal-address="+d.TemporalAddress+" status", func() { <-ctx.Done() })
	})
}

func (d *fleetDemo) shutdown() {
	for _, m := range slices.Backward(d.members) { // The first cluster runs Temporal, and therefore stops last.
		m.Shutdown()
	}
}

// start starts the clusters one after the other, because each start uses all CPUs of the machine for several
// seconds.
func (d *fleetDemo) start(ctx context.Context) error {
	d.step("starting the clusters canary, eu and rest, and one Temporal: about a minute")
	for _, name := range []string{"canary", "eu", "rest"} {
		dir := filepath.Join(d.dir, name)
		if err := cluster.RemoveState(dir); err != nil {
			return err
		}
		c, err := cluster.Start(ctx, cluster.Options{Dir: dir, Nodes: 1, Temporal: cluster.DevServer, WithoutTemporal: d.Cluster != nil})
		if err != nil {
			return err
		}
		m := &fleetMember{demo: demo{Cluster: c, out: io.Discard}, name: name}
		d.members = append(d.members, m)
		if d.Cluster == nil {
			d.Cluster = c
		}
		c.TemporalAddress, c.TemporalUI = d.TemporalAddress, d.TemporalUI
	}
	d.step("three clusters are up; Temporal: %s", d.TemporalUI)
	return nil
}

// install starts the roles and the page, and creates the same objects in each cluster.
func (d *fleetDemo) install(ctx context.Context) error {
	all, starting := errgroup.WithContext(ctx)
	for _, m := range d.members {
		all.Go(func() error { return m.startRoles(starting) })
	}
	all.Go(func() error {
		address, err := d.StartUI(starting, "--fleet")
		d.page = address + "/fleet"
		return err
	})
	if err := all.Wait(); err != nil {
		return err
	}
	policy, err := manifests.ReadFile("manifests/fleetpolicy.yaml")
	if err != nil {
		return fmt.Errorf("read the FleetPolicy: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "outrigger"), "fleet", "--temporal-address="+d.TemporalAddress, "--temporal-namespace="+cluster.TemporalNamespace, "apply", "-f", "-")
	cmd.Stdin = bytes.NewReader(policy)
	cmd.Env = append(os.Environ(), cluster.TemporalEnv()...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply the FleetPolicy: %w: %s", err, out)
	}
	d.step("Outrigger runs in each cluster; the page: %s", d.page)
	return nil
}

func (d *fleetDemo) readPage(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.page, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", d.page, response.Status)
	}
	return string(body), err
}

func (m *fleetMember) startRoles(ctx context.Context) error {
	return startRoles(ctx, m.Cluster, map[string][]string{
		cluster.Operator: {"--fleet"}, cluster.Webhook: {"--fleet"},
		cluster.Worker: {"--fleet", "--fleet-cluster-name=" + m.name, "--fleet-cluster-labels=stage=" + m.name},
	})
}

// rollOut rolls out the first version, and then a second version, which is delivered to the last cluster
// first.
func (d *fleetDemo) rollOut(ctx context.Context) error {
	for _, m := range d.members {
		if err := m.deploy(ctx, "fleet.yaml", "edge.yaml", "edge", "proxy", "proxy:v1"); err != nil {
			return err
		}
	}
	if err := d.complete(ctx, "proxy:v1", func() error { return nil }); err != nil {
		return err
	}
	if err := d.deliver(ctx, "proxy:v2"); err != nil {
		return err
	}
	// No cluster may change before the clusters of the earlier stages have completed.
	return d.complete(ctx, "proxy:v2", func() error {
		for i, m := range d.members[1:] {
			if before := d.members[i].watched.View(); m.watched.View().Updated > 0 && before.Updated < fleetPods {
				return fmt.Errorf("%s changed before %s had completed", m.name, d.members[i].name)
			}
		}
		return nil
	})
}

// complete waits until the rollout of an image has completed in all clusters. Meanwhile, check is called.
func (d *fleetDemo) complete(ctx context.Context, image string, check func() error) error {
	if err := d.awaitFleet(ctx, protocol.FleetThrough, check); err != nil {
		return err
	}
	if err := d.awaitPods(ctx, image); err != nil {
		return err
	}
	d.step("%d pods of each cluster run %s", fleetPods, image)
	return nil
}

// stop delivers a version that cannot start. The rollout stops in the first cluster, and the first cluster is
// rolled back.
func (d *fleetDemo) stop(ctx context.Context) error {
	if err := d.deliver(ctx, "proxy:bad"); err != nil {
		return err
	}
	unchanged := func() error {
		for _, m := range d.members[1:] {
			if m.watched.View().Updated > 0 {
				return fmt.Errorf("%s got the version that fails", m.name)
			}
		}
		return nil
	}
	if err := d.awaitFleet(ctx, protocol.FleetFailed, unchanged); err != nil {
		return err
	}
	if err := d.awaitPods(ctx, "proxy:v2"); err != nil {
		return err
	}
	page, err := d.readPage(ctx)
	if err != nil {
		return err
	}
	if !strings.Contains(page, string(protocol.FleetFailed)) {
		return fmt.Errorf("the page does not show %s:\n%s", protocol.FleetFailed, page)
	}
	d.step("done: canary is back at proxy:v2; no pod of eu and rest has changed; the page shows why")
	return nil
}

// deliver changes the image in all clusters like a GitOps tool, in the reverse order of the stages.
func (d *fleetDemo) deliver(ctx context.Context, image string) error {
	d.step("GitOps delivers %s to all clusters, to rest first", image)
	for _, m := range slices.Backward(d.members) {
		if err := m.setImage(ctx, fleetSet, image); err != nil {
			return err
		}
	}
	return nil
}

func (d *fleetDemo) awaitPods(ctx context.Context, image string) error {
	for _, m := range d.members {
		m.watched.Expect(image)
		if _, err := m.watched.Await(ctx, observer.Converged(fleetPods)); err != nil {
			return fmt.Errorf("wait for pods with %s in %s: %w", image, m.name, err)
		}
	}
	return nil
}

// awaitFleet prints the progress of the rollout until the phase is reached, and ignores the rollout of the
// previous content. Meanwhile, check is called.
func (d *fleetDemo) awaitFleet(ctx context.Context, phase protocol.FleetPhase, check func() error) error {
	var shown string
	before := d.ended
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var state protocol.FleetState
		answer, err := d.Temporal.QueryWorkflow(ctx, protocol.FleetWorkflowID(fleetSet), "", protocol.StatusQuery)
		if err != nil {
			return false, nil // No cluster has reported content yet.
		}
		if err := answer.Get(&state); err != nil {
			return false, fmt.Errorf("read the fleet: %w", err)
		}
		if text := fmt.Sprintf("%s: %s", state.Phase, state.Message); state.Hash != before && text != shown && state.Message != "" {
			shown = text
			d.step("  %s", text)
		}
		if err := check(); err != nil {
			return false, err
		}
		d.ended = state.Hash
		return state.Hash != before && state.Phase == phase, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the fleet is %s: %w (%w)", phase, err, context.Cause(ctx))
	}
	return nil
}
