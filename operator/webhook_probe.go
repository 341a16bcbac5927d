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
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// probeInterval is the time between two probes of the webhook. probeTimeout limits each probe.
	probeInterval = 2 * time.Second
	probeTimeout  = 2 * time.Second
	// equalProbes is the number of consecutive probes with the same result before status changes. Otherwise,
	// the restart of one replica would change the status of every SidecarSet.
	equalProbes = 2
)

// errUndecided is the result of a probe that cannot resolve the address of the webhook.
var errUndecided = errors.New("the address of the webhook is not known")

// webhookProbe connects to the webhook of pods in the same way as API servers. The webhook configuration
// contains the address of the webhook, and the CA that verifies the serving certificate.
type webhookProbe struct {
	webhook *podWebhook
	// changes receives an event that requeues all SidecarSets.
	changes chan event.GenericEvent

	mu sync.Mutex
	// last is the fault that the last probe found, or "". equal is the number of consecutive
	// probes with this result.
	last  string
	equal int
	// decided is set once the probes have determined fault. fault is empty if the webhook responds.
	decided bool
	fault   string
	// selection is the result of podWebhook.selection at the last probe.
	selection int
}

func newWebhookProbe(webhook *podWebhook) *webhookProbe {
	return &webhookProbe{webhook: webhook, changes: make(chan event.GenericEvent, 1)}
}

// Start implements manager.Runnable.
func (p *webhookProbe) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, p.check, probeInterval)
	return nil
}

// check probes the webhook. If the probe fails, or if the webhook is not installed or has no rules, check
// reads the configuration again. If the configuration has changed, check probes again, because the
// configuration may have another CA, or the webhook may have been activated.
func (p *webhookProbe) check(ctx context.Context) {
	installed := p.webhook.installed(ctx)
	err := connect(ctx, installed)
	if err != nil || installed == nil || len(installed.Rules) == 0 {
		newest := p.webhook.reread(ctx)
		if !equality.Semantic.DeepEqual(installed, newest) {
			err = connect(ctx, newest)
		}
		installed = newest
	}
	selection := p.webhook.selection(ctx)
	reselected := selection != p.selection
	p.selection = selection
	if ctx.Err() != nil {
		return
	}
	decided := !errors.Is(err, errUndecided) && p.record(p.describe(installed, err))
	if !decided && !reselected {
		return
	}
	select {
	case p.changes <- event.GenericEvent{Object: &v1alpha1.SidecarSet{}}:
	default: // an event that is already in the channel has the same effect
	}
}

// describe returns a text with the address, the cause and the effect of a failed probe. If err is nil, the
// text is empty. The cause is the innermost error, which contains neither the port of the client nor a time,
// so that each probe of the same fault returns the same text.
func (p *webhookProbe) describe(installed *admissionregistrationv1.MutatingWebhook, err error) string {
	if err == nil || installed == nil {
		return ""
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		invalid.Detail = ""
		err = errors.New(strings.TrimSuffix(invalid.Error(), ": "))
	}
	address, _, _ := endpoint(&installed.ClientConfig)
	effect := "new pods are rejected (failurePolicy Fail)"
	if ptr.Deref(installed.FailurePolicy, admissionregistrationv1.Fail) == admissionregistrationv1.Ignore {
		effect = "new pods get no sidecars (failurePolicy Ignore)"
	}
	return fmt.Sprintf("the webhook at %s does not respond to the operator (%v); until it responds, %s%skubectl get pods -n %s -l app.kubernetes.io/component=webhook",
		address, err, effect, v1alpha1.FindPods, p.webhook.namespace)
}

// record records the fault that a probe found, or "" if the webhook responded. record reports whether status
// changes. If the cause alternates between probes, for example because the probes connect to different
// replicas, status keeps the first cause.
func (p *webhookProbe) record(fault string) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	repeated := fault == p.last
	if (fault == "") != (p.last == "") {
		p.equal = 0
	}
	p.last = fault
	p.equal++
	known := p.decided && (fault == "") == (p.fault == "")
	switch {
	case p.equal < equalProbes && (p.decided || fault != ""):
		return false
	case known && !repeated:
		return false
	}
	changed = !p.decided || p.fault != fault
	p.decided, p.fault = true, fault
	return changed
}

// unavailable returns the fault of the webhook, or "" if the webhook responds. Until the probes have
// determined the fault, unavailable returns the fault in status.
func (p *webhookProbe) unavailable(set *v1alpha1.SidecarSet) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.decided {
		return p.fault
	}
	if stored := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionInjected); stored != nil && stored.Reason == v1alpha1.ReasonWebhookUnavailable {
		return stored.Message
	}
	return ""
}

// connect returns an error if an API server could not connect to the webhook. If the webhook is not installed
// or has no rules, connect returns nil, because API servers do not call the webhook.
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
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		// API servers do not need DNS to find a Service, but an operator outside of the cluster cannot
		// resolve the name of the Service.
		return errUndecided
	}
	if err != nil {
		return err
	}
	return connection.Close()
}

// endpoint returns the address of a webhook, and the host that the serving certificate must contain.
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
