package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/revision"
)

const (
	matchingApp  = "shop"
	matchingSets = 3
)

// admission measures how fast the webhook answers pod admissions over TLS. The SidecarSets are
// stored in a real API server.
type admission struct {
	others   []int
	runs     int
	duration time.Duration

	h *harness
	// url is the URL of the webhook. address is the host and port of the URL.
	url, address string
	// stored lists the stored SidecarSets that match no pod.
	stored []*v1alpha1.SidecarSet
}

func newAdmission() *cobra.Command {
	b := &admission{}
	cmd := subcommand("admission", "Measure the admission of pods", b)
	cmd.Flags().IntSliceVar(&b.others, "others", []int{97, 10, 1000, 10000}, "numbers of SidecarSets that do not match, in addition to the three that do")
	cmd.Flags().IntVar(&b.runs, "runs", 3, "number of runs of each measurement")
	cmd.Flags().DurationVar(&b.duration, "duration", 4*time.Second, "length of a run")
	return cmd
}

func (b *admission) check() error {
	if b.runs < 1 || b.duration <= 0 {
		return fmt.Errorf("--runs %d --duration %s: at least one, and more than 0", b.runs, b.duration)
	}
	return nil
}

func (b *admission) run(ctx context.Context, out io.Writer) (err error) {
	if b.h, err = startHarness(ctx, cluster.Options{Nodes: 1, WithoutTemporal: true}); err != nil {
		return err
	}
	defer b.h.close()
	for i := range matchingSets {
		if err := b.create(ctx, newSetOf(fmt.Sprintf("match-%d", i), matchingApp)); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(out, loadHeader); err != nil {
		return err
	}
	for _, others := range b.others {
		if err := b.measure(ctx, others, out); err != nil {
			return fmt.Errorf("%d SidecarSets that do not match: %w", others, err)
		}
	}
	return nil
}

// measure starts the webhook and loads it with requests. The webhook caches the SidecarSets that
// match the pod, and a number of other SidecarSets.
func (b *admission) measure(ctx context.Context, others int, out io.Writer) error {
	if err := b.store(ctx, others); err != nil {
		return err
	}
	if err := b.startWebhook(ctx); err != nil {
		return err
	}
	trusted, err := b.authority(ctx)
	if err != nil {
		return err
	}
	for _, pod := range []struct {
		name, app string
		sidecars  int
	}{{"injected", matchingApp, matchingSets}, {"left alone", "nobody", 0}} {
		load, err := newLoad(ctx, b.address, trusted, pod.app, pod.sidecars)
		if err != nil {
			return err
		}
		for _, pattern := range []pattern{{kept: 1}, {kept: 8}, {kept: 25, opened: 25}, {opened: 8}} {
			if err := b.runAll(ctx, load, pattern, fmt.Sprintf("%6d %-10s", others, pod.name), out); err != nil {
				return err
			}
		}
	}
	return b.stopWebhook(ctx)
}

// runAll prints the result of every run, and the best result.
func (b *admission) runAll(ctx context.Context, l *load, p pattern, name string, out io.Writer) error {
	if _, err := l.run(ctx, p, b.duration/4); err != nil { // the first run warms up the webhook
		return err
	}
	webhook, err := b.h.stack.Process(cluster.Webhook)
	if err != nil {
		return err
	}
	var best *loaded
	for range b.runs {
		before, err := usageOf(webhook.PID)
		if err != nil {
			return err
		}
		r, err := l.run(ctx, p, b.duration)
		if err != nil {
			return err
		}
		after, err := usageOf(webhook.PID)
		if err != nil {
			return err
		}
		r.processor, r.peak = (after.processor-before.processor)/float64(r.requests), after.peak
		if _, err := fmt.Fprintf(out, "%s %s\n", name, r); err != nil {
			return err
		}
		if best == nil || r.rate() > best.rate() {
			best = r
		}
	}
	_, err = fmt.Fprintf(out, "%s %s  best\n", name, best)
	return err
}

// startWebhook starts the webhook, or restarts it so that its memory is empty.
func (b *admission) startWebhook(ctx context.Context) error {
	if b.url != "" {
		if err := b.h.stack.InstallWebhooks(ctx, b.url); err != nil {
			return err
		}
		return b.h.stack.StartAgain(ctx, cluster.Webhook)
	}
	role, err := b.h.stack.StartRole(ctx, cluster.Webhook)
	if err != nil {
		return err
	}
	parsed, err := url.Parse(role.WebhookURL)
	if err != nil {
		return fmt.Errorf("webhook URL: %w", err)
	}
	b.url, b.address = role.WebhookURL, parsed.Host
	return nil
}

// stopWebhook also deletes the webhook configurations, so that SidecarSets can be stored
// without the webhook.
func (b *admission) stopWebhook(ctx context.Context) error {
	if err := b.h.stack.Stop(cluster.Webhook); err != nil {
		return err
	}
	return b.h.deleteConfigurations(ctx)
}

// authority returns the CA in the webhook configuration.
func (b *admission) authority(ctx context.Context) (*x509.CertPool, error) {
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	if err := b.h.stack.Kube.Get(ctx, client.ObjectKey{Name: "outrigger"}, &configuration); err != nil {
		return nil, fmt.Errorf("read the webhook's CA: %w", err)
	}
	pool := x509.NewCertPool()
	for _, hook := range configuration.Webhooks {
		if !pool.AppendCertsFromPEM(hook.ClientConfig.CABundle) {
			return nil, errors.New("the webhook configuration trusts no CA")
		}
	}
	return pool, nil
}

// store creates or deletes SidecarSets that match no pod, until there are n. The caller has to
// stop the webhook first.
func (b *admission) store(ctx context.Context, n int) error {
	for len(b.stored) > n {
		last := len(b.stored) - 1
		if err := b.h.stack.Kube.Delete(ctx, b.stored[last]); err != nil {
			return fmt.Errorf("remove a SidecarSet: %w", err)
		}
		b.stored = b.stored[:last]
	}
	for len(b.stored) < n {
		name := fmt.Sprintf("other-%05d", len(b.stored))
		set := newSetOf(name, name)
		if err := b.create(ctx, set); err != nil {
			return err
		}
		b.stored = append(b.stored, set)
	}
	return nil
}

// create completes a SidecarSet as admission does, and stores it.
func (b *admission) create(ctx context.Context, set *v1alpha1.SidecarSet) error {
	defaults.Write(set)
	if err := revision.WriteHashes(set); err != nil {
		return err
	}
	for {
		err := b.h.stack.Kube.Create(ctx, set)
		if err == nil {
			return nil
		}
		// The API server calls a webhook for a while after its configuration was removed.
		if ctx.Err() != nil || client.IgnoreAlreadyExists(err) == nil {
			return fmt.Errorf("store SidecarSet %s: %w", set.Name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// newSetOf returns a SidecarSet for the admission benchmark. Its container has ten variables and
// one mount, shares the mounts of the app, and copies one variable of the app.
func newSetOf(name, app string) *v1alpha1.SidecarSet {
	container := v1alpha1.SidecarContainer{Container: corev1.Container{
		Name: name, Image: "registry.example.com/sidecars/" + name + ":v1",
		VolumeMounts: []corev1.VolumeMount{{Name: name, MountPath: "/var/lib/" + name}},
	}}
	for i := range 10 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: fmt.Sprintf("value of setting %d", i)})
	}
	container.ShareVolumePolicy.Type = v1alpha1.ShareVolumePolicyEnabled
	container.TransferEnv = []v1alpha1.TransferEnvVar{{SourceContainerName: "app", EnvName: "REGION"}}
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: app}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{container}
	set.Spec.Volumes = []corev1.Volume{{Name: name}}
	return set
}
