package operator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// probeInterval is the time between two probes of the webhook, and probeTimeout limits
	// each of them.
	probeInterval = 2 * time.Second
	probeTimeout  = 3 * time.Second
	// faultyProbes is how many probes in a row fail before the webhook counts as unavailable,
	// so that the restart of one replica does not change every SidecarSet.
	faultyProbes = 2
)

// webhookProbe connects to the webhook of pods as API servers do: to its address, with its
// serving certificate verified by the CA in its configuration.
type webhookProbe struct {
	webhook *podWebhook
	// changes requeues all SidecarSets.
	changes chan event.GenericEvent

	mu     sync.Mutex
	failed int
	fault  string
}

func newWebhookProbe(webhook *podWebhook) *webhookProbe {
	return &webhookProbe{webhook: webhook, changes: make(chan event.GenericEvent, 1)}
}

// Start implements manager.Runnable.
func (p *webhookProbe) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, p.check, probeInterval)
	return nil
}

// check probes once. A failed probe is repeated with the configuration of now, whose CA may
// be a newer one.
func (p *webhookProbe) check(ctx context.Context) {
	installed := p.webhook.installed(ctx)
	err := connect(ctx, installed)
	if err != nil {
		installed = p.webhook.reread(ctx)
		err = connect(ctx, installed)
	}
	if ctx.Err() == nil && p.record(installed, err) {
		select {
		case p.changes <- event.GenericEvent{Object: &v1alpha1.SidecarSet{}}:
		default: // the event that waits has the same effect
		}
	}
}

// record reports whether the webhook became unavailable, or available again. The fault keeps
// the cause of its beginning, so that status does not change with ports and times.
func (p *webhookProbe) record(installed *admissionregistrationv1.MutatingWebhook, err error) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		changed = p.fault != ""
		p.failed, p.fault = 0, ""
		return changed
	}
	p.failed++
	if p.failed != faultyProbes {
		return false
	}
	effect := "new pods are rejected"
	if ptr.Deref(installed.FailurePolicy, admissionregistrationv1.Fail) == admissionregistrationv1.Ignore {
		effect = "new pods get no sidecars"
	}
	p.fault = fmt.Sprintf("the webhook does not answer, and %s: %v; find its pods: kubectl get pods -n %s -l app.kubernetes.io/component=webhook",
		effect, err, p.webhook.namespace)
	return true
}

// unavailable describes the fault of the webhook; it is empty while there is none.
func (p *webhookProbe) unavailable() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

// connect returns an error if an API server could not connect to the webhook. API servers do
// not call a webhook that is not installed, or has no rules.
func connect(ctx context.Context, webhook *admissionregistrationv1.MutatingWebhook) error {
	if webhook == nil || len(webhook.Rules) == 0 {
		return nil
	}
	address, host, err := endpoint(&webhook.ClientConfig)
	if err != nil {
		return err
	}
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if bundle := webhook.ClientConfig.CABundle; len(bundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(bundle)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if unknown, ok := errors.AsType[*net.DNSError](err); ok && unknown.IsNotFound {
		// An operator that runs outside of the cluster does not know the names of Services.
		return nil
	}
	if err != nil {
		return err
	}
	return connection.Close()
}

// endpoint returns the address of a webhook, and the host that its certificate has to name.
func endpoint(config *admissionregistrationv1.WebhookClientConfig) (address, host string, err error) {
	if service := config.Service; service != nil {
		host = service.Name + "." + service.Namespace + ".svc"
		return net.JoinHostPort(host, strconv.Itoa(int(ptr.Deref(service.Port, 443)))), host, nil
	}
	at, err := url.Parse(ptr.Deref(config.URL, ""))
	if err != nil || at.Hostname() == "" {
		return "", "", fmt.Errorf("its configuration has neither a service nor a URL with a host: %q", ptr.Deref(config.URL, ""))
	}
	port := at.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(at.Hostname(), port), at.Hostname(), nil
}
