package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube"
)

const podPath = "/mutate-pod"

type bench struct {
	stack    *cluster.Cluster
	kube     client.Client
	runs     int
	duration time.Duration
	// url of the webhook, and the address in it.
	url, address string
	// stored are the names of the sets that match nothing.
	stored []string
}

func newBench(stack *cluster.Cluster, runs int, duration time.Duration) (*bench, error) {
	config, err := stack.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register API types: %w", err)
	}
	b := &bench{stack: stack, runs: runs, duration: duration}
	if b.kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return b, nil
}

// measure loads a freshly started webhook that knows three sets that match the
// pod and so many others.
func (b *bench) measure(ctx context.Context, others int, out io.Writer) error {
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
		load, err := newLoad(b.address, trusted, pod.app, pod.sidecars)
		if err != nil {
			return err
		}
		for _, pattern := range patterns() {
			if err := b.runAll(ctx, load, pattern, fmt.Sprintf("%6d %-10s", others, pod.name), out); err != nil {
				return err
			}
		}
	}
	return b.stopWebhook(ctx)
}

// runAll prints every run and the best of them.
func (b *bench) runAll(ctx context.Context, l *load, p pattern, name string, out io.Writer) error {
	if _, err := l.run(ctx, p, b.duration/4); err != nil { // to warm up
		return err
	}
	var best *result
	for range b.runs {
		before, err := b.usage()
		if err != nil {
			return err
		}
		f, err := l.run(ctx, p, b.duration)
		if err != nil {
			return err
		}
		after, err := b.usage()
		if err != nil {
			return err
		}
		f.cpu, f.peak = (after.cpu-before.cpu)/time.Duration(f.requests), after.peak
		if _, err := fmt.Fprintf(out, "%s %s\n", name, f); err != nil {
			return err
		}
		if best == nil || f.rate() > best.rate() {
			best = f
		}
	}
	_, err := fmt.Fprintf(out, "%s %s  best\n", name, best)
	return err
}

// startWebhook starts the role for the first time, or again with an empty memory.
func (b *bench) startWebhook(ctx context.Context) error {
	if b.url != "" {
		if err := b.stack.InstallWebhooks(ctx, b.url); err != nil {
			return err
		}
		return b.stack.StartAgain(ctx, cluster.Webhook)
	}
	role, err := b.stack.StartRole(ctx, cluster.Webhook)
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

// stopWebhook also tells the API server to ask it no longer, so that sets can be
// stored without it.
func (b *bench) stopWebhook(ctx context.Context) error {
	if err := b.stack.Stop(cluster.Webhook); err != nil {
		return err
	}
	name := metav1.ObjectMeta{Name: "outrigger"}
	for _, configuration := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: name},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: name},
	} {
		if err := b.kube.Delete(ctx, configuration); err != nil {
			return fmt.Errorf("remove the webhook configuration: %w", err)
		}
	}
	return nil
}

// authority is what the API server was told to trust.
func (b *bench) authority(ctx context.Context) (*x509.CertPool, error) {
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	if err := b.kube.Get(ctx, client.ObjectKey{Name: "outrigger"}, &configuration); err != nil {
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

// store brings the number of sets that do not match to n. They are stored past
// admission, complete as admission would have made them.
func (b *bench) store(ctx context.Context, n int) error {
	if b.address == "" {
		for _, set := range matching() {
			if err := b.create(ctx, set); err != nil {
				return err
			}
		}
	}
	for len(b.stored) > n {
		last := len(b.stored) - 1
		set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: b.stored[last]}}
		if err := b.kube.Delete(ctx, set); err != nil {
			return fmt.Errorf("remove a SidecarSet: %w", err)
		}
		b.stored = b.stored[:last]
	}
	for len(b.stored) < n {
		set := other(len(b.stored))
		if err := b.create(ctx, set); err != nil {
			return err
		}
		b.stored = append(b.stored, set.Name)
	}
	return nil
}

func (b *bench) create(ctx context.Context, set *v1alpha1.SidecarSet) error {
	if err := complete(set); err != nil {
		return err
	}
	for {
		err := b.kube.Create(ctx, set)
		if err == nil {
			return nil
		}
		// A webhook configuration that was just removed is asked for a while yet.
		if ctx.Err() != nil || client.IgnoreAlreadyExists(err) == nil {
			return fmt.Errorf("store SidecarSet %s: %w", set.Name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}
