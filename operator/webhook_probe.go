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
	// probeInterval is the time between two probes of the webhook. probeTimeout limits each
	// probe.
	probeInterval = 2 * time.Second
	probeTimeout  = 3 * time.Second
	// faultyProbes is the number of consecutive failed probes after which the webhook counts as
	// unavailable. A single failed probe, for example during the restart of a replica, does not
	// change the status of every SidecarSet.
	faultyProbes = 2
)

// webhookProbe connects to the webhook of pods as an API server does. It uses the address in the
// configuration of the webhook, and verifies the serving certificate by the CA in the
// configuration.
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

// check probes the webhook. If the probe fails, check reads the configuration again and repeats
// the probe, because the CA may have changed.
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
		default: // an event that is already queued has the same effect
		}
	}
}

// record records the result of a probe, and reports whether the webhook has become unavailable or
// available. The fault contains the cause of the first failure, so that status does not change
// with each probe.
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

// unavailable returns the description of the fault of the webhook. It is empty while there is no
// fault.
func (p *webhookProbe) unavailable() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

// connect returns an error if an API server cannot connect to the webhook. It returns nil if the
// webhook is not installed or has no rules, because API servers do not call such a webhook.
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
		// An operator outside of the cluster cannot resolve the names of Services.
		return nil
	}
	if err != nil {
		return err
	}
	return connection.Close()
}

// endpoint returns the address of a webhook, and the host for which the certificate must be
// valid.
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
