package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

//go:embed manifests
var manifests embed.FS

const (
	set            = "test-sidecarset"
	pods           = 20
	maxUnavailable = 2
	before         = "centos:6.7"
	after          = "centos:7"
	pauseAt        = 6
	// pausedFor is the time for which the rollout stays paused.
	pausedFor = 3 * time.Second
	timeout   = 10 * time.Minute
)

// demo shows a rollout on a running stack. demo prints a line for each step, with the seconds since the
// start.
type demo struct {
	*cluster.Cluster
	out      io.Writer
	exit     bool
	verbose  bool
	began    time.Time
	watched  *observer.Watch
	workflow string
}

// step prints a line. step ignores write errors, so that the demo continues if no process reads the output.
func (d *demo) step(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, "%6.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// detail prints a line in verbose mode only.
func (d *demo) detail(format string, args ...any) {
	if d.verbose {
		text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n          ")
		_, _ = fmt.Fprintf(d.out, "          %s\n", text)
	}
}

func (d *demo) inject(ctx context.Context) error {
	if err := d.deploy(ctx, "sidecarset.yaml", "deployment.yaml", "nginx", "sidecar1", before); err != nil {
		return err
	}
	if _, err := d.watched.Await(ctx, observer.Converged(pods)); err != nil {
		return fmt.Errorf("wait for injected pods: %w", err)
	}
	d.step("%d pods match a SidecarSet: each was injected with sidecar1, running %s", pods, before)
	if err := d.awaitStatus(ctx); err != nil {
		return err
	}
	uid, err := d.Kubectl(ctx, nil, "get", "sidecarset", set, "-o", "jsonpath={.metadata.uid}")
	if err != nil {
		return err
	}
	d.workflow = "sidecarset/" + set + "/" + uid
	return nil
}

// deploy applies a SidecarSet, and then a Deployment with the label app, whose pods get the sidecar with the
// image. deploy watches these pods until ctx ends.
func (d *demo) deploy(ctx context.Context, set, deployment, app, sidecar, image string) error {
	config, err := d.RESTConfig()
	if err != nil {
		return err
	}
	if d.watched, err = observer.WatchPods(ctx, config, "default", "app="+app, sidecar, ""); err != nil {
		return err
	}
	d.watched.Expect(image)
	if err := d.apply(ctx, set); err != nil {
		return err
	}
	if err := d.awaitInjection(ctx, app, sidecar); err != nil {
		return err
	}
	return d.apply(ctx, deployment)
}

// awaitInjection waits until the webhook injects a sidecar into pods with a label app. Pods that are created before
// the webhook has observed the SidecarSet get no sidecar.
func (d *demo) awaitInjection(ctx context.Context, app, sidecar string) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var containers string
		containers, last = d.Kubectl(ctx, nil, "run", "probe", "--image=nginx", "--labels=app="+app, "--dry-run=server", "-o", "jsonpath={.spec.containers[*].name}")
		return slices.Contains(strings.Fields(containers), sidecar), nil
	})
	if err != nil {
		return fmt.Errorf("wait until the webhook injects %s: %w", sidecar, errors.Join(context.Cause(ctx), last))
	}
	return nil
}

func (d *demo) change(ctx context.Context) error {
	if err := d.setImage(ctx, set, after); err != nil {
		return err
	}
	d.step("the image changes to %s; at most %d pods may be unavailable; the run: %s", after, maxUnavailable, d.runURL())
	if err := d.follow(ctx, func(v observer.View) bool { return v.Updated > 0 }); err != nil {
		return err
	}
	d.step("the first pod is upgraded in place")
	return nil
}

// setImage changes the image of the sidecar of a SidecarSet.
func (d *demo) setImage(ctx context.Context, set, image string) error {
	d.watched.Expect(image)
	return d.print(ctx, "patch", "sidecarset", set, "--type=json",
		`--patch=[{"op":"replace","path":"/spec/containers/0/image","value":"`+image+`"}]`)
}

func (d *demo) runURL() string {
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", d.TemporalUI, cluster.TemporalNamespace, strings.ReplaceAll(d.workflow, "/", "%2F"))
}

func (d *demo) pauseAndResume(ctx context.Context) error {
	if err := d.follow(ctx, func(v observer.View) bool { return v.Updated >= pauseAt }); err != nil {
		return err
	}
	if err := d.signal(ctx, protocol.PauseSignal, "to look around"); err != nil {
		return err
	}
	if err := d.awaitPhase(ctx, protocol.PhasePaused); err != nil {
		return err
	}
	paused, err := d.watched.Await(ctx, func(v observer.View) bool { return v.InFlight == 0 })
	if err != nil {
		return fmt.Errorf("wait for the batch in progress: %w", err)
	}
	d.step("the rollout is paused at %d of %d pods; no pod is patched for %s", paused.Updated, pods, pausedFor)
	select {
	case <-time.After(pausedFor):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if now := d.watched.View(); now.Updated != paused.Updated || now.Updated == pods {
		return fmt.Errorf("paused at %d updated pods, but there are %d now", paused.Updated, now.Updated)
	}
	if err := d.signal(ctx, protocol.ResumeSignal, "all is well"); err != nil {
		return err
	}
	d.step("the rollout is resumed")
	return nil
}

func (d *demo) finish(ctx context.Context) error {
	if err := d.follow(ctx, observer.Converged(pods)); err != nil {
		return err
	}
	worst, event := d.watched.Worst()
	view := d.watched.View()
	d.step("done: %d pods run %s; at most %d were unavailable at once; app containers restarted %d times",
		view.Updated, after, worst, view.AppRestarts)
	var broken []error
	if worst > maxUnavailable {
		broken = append(broken, fmt.Errorf("%d pods were unavailable at once (event: %s), %d are allowed", worst, event, maxUnavailable))
	}
	if view.AppRestarts > 0 {
		broken = append(broken, fmt.Errorf("app containers restarted %d times", view.AppRestarts))
	}
	if view.SidecarRestarts != pods {
		broken = append(broken, fmt.Errorf("sidecars restarted %d times, %d are expected", view.SidecarRestarts, pods))
	}
	if err := d.awaitStatus(ctx); err != nil {
		broken = append(broken, err)
	}
	if err := d.awaitPhase(ctx, protocol.PhaseComplete); err != nil {
		broken = append(broken, err)
	}
	return errors.Join(broken...)
}

// awaitStatus waits until the status of the SidecarSet shows that all pods have the newest version and are
// ready, and prints the columns of kubectl get.
func (d *demo) awaitStatus(ctx context.Context) error {
	for column, field := range map[string]string{"matched": "matchedPods", "updated": "updatedPods", "ready": "readyPods", "updated and ready": "updatedReadyPods"} {
		_, err := d.Kubectl(ctx, nil, "wait", "sidecarset/"+set, "--timeout=30s", fmt.Sprintf("--for=jsonpath={.status.%s}=%d", field, pods))
		if err != nil {
			return fmt.Errorf("status does not say that %d pods are %s: %w", pods, column, err)
		}
	}
	return d.print(ctx, "get", "sidecarset", set)
}

// follow prints the progress of the pods until the condition is true.
func (d *demo) follow(ctx context.Context, until func(observer.View) bool) error {
	var shown observer.View
	_, err := d.watched.Await(ctx, func(v observer.View) bool {
		if v.Updated != shown.Updated || v.InFlight != shown.InFlight {
			d.detail("%s updated %2d/%d   in flight %d of %d", bar(v.Updated-v.InFlight, v.InFlight, pods), v.Updated, pods, v.InFlight, maxUnavailable)
			shown = v
		}
		return until(v)
	})
	return err
}

func bar(done, moving, all int) string {
	return strings.Repeat("█", max(done, 0)) + strings.Repeat("▒", moving) + strings.Repeat("·", max(all-done-moving, 0))
}

func (d *demo) signal(ctx context.Context, name, reason string) error {
	if err := d.Temporal.SignalWorkflow(ctx, d.workflow, "", name, protocol.Pause{By: "demo", Reason: reason}); err != nil {
		return fmt.Errorf("send the signal %s: %w", name, err)
	}
	return nil
}

// awaitPhase queries the run until the run is in the given phase.
func (d *demo) awaitPhase(ctx context.Context, phase protocol.Phase) error {
	var status protocol.RolloutStatus
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		answer, err := d.Temporal.QueryWorkflow(ctx, d.workflow, "", protocol.StatusQuery)
		if err == nil {
			err = answer.Get(&status)
		}
		last = err
		return err == nil && status.Phase == phase, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the run is %s, it is %q: %w", phase, status.Phase, errors.Join(context.Cause(ctx), last))
	}
	d.detail("the run reports %s: %s", status.Phase, status.Message)
	return nil
}

func (d *demo) apply(ctx context.Context, file string) error {
	manifest, err := manifests.ReadFile("manifests/" + file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	out, err := d.Kubectl(ctx, manifest, "apply", "-f", "-")
	if err != nil {
		return err
	}
	d.detail("$ kubectl apply -f %s\n%s", file, out)
	return nil
}

func (d *demo) print(ctx context.Context, args ...string) error {
	out, err := d.Kubectl(ctx, nil, args...)
	if err != nil {
		return err
	}
	d.detail("$ kubectl %s\n%s", strings.Join(args, " "), out)
	return nil
}
