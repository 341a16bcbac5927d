package registration

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// certificateSecret holds what all replicas serve with.
const certificateSecret = "outrigger-webhook-cert"

// renewalRequeueDelay is how often the age of the certificate is checked.
const renewalRequeueDelay = time.Hour

// propagationDelay is how long API servers may take to see a new CA. Until then the
// certificate before is served, which they trust as well.
const propagationDelay = 10 * time.Second

// watchRestartTimeout bounds how long sets may be without a watch once the definition was
// changed: the API server ends the watches of SidecarSets after a second, and a
// client backs off, again for seconds, before it watches anew.
const (
	watchRestartTimeout = 10 * time.Second
	watchRequeueDelay   = 50 * time.Millisecond
)

// endpointDelay is how long the nodes may take to see that the Service has its first
// endpoint.
const endpointDelay = 5 * time.Second

// reachableRequeueDelay is how often it is checked whether a replica is reachable.
const reachableRequeueDelay = 200 * time.Millisecond

var errNoCertificate = errors.New("the webhook has no certificate yet")

// fieldOwner is the field manager of what this role writes into the
// configurations.
const fieldOwner = "outrigger-webhook"

// Options of a Reconciler.
type Options struct {
	// URL is how the API server reaches this process from outside the cluster;
	// empty means through the Service.
	URL string
	// ServiceName is the Service in SystemNamespace, which also holds the
	// certificate.
	ServiceName, SystemNamespace string
	Log                          logr.Logger
}

// Reconciler writes the certificate and the registration of the webhooks, together
// with the other replicas: one that loses the race follows what it sees. Rules are
// written only once a replica is reachable. From then on a new certificate is
// served only once the API server's copy of the configurations trusts its CA, so
// that no request meets a certificate that is not trusted.
type Reconciler struct {
	// client reads from the cache.
	client    client.Client
	secret    client.ObjectKey
	authority authority
	endpoint  endpoint
	log       logr.Logger
	now       func() time.Time
	// reachable reports whether a request of the API server would be answered.
	reachable func(context.Context) (bool, error)
	// endpointDelay is how long nodes may take to route to a Service that has become
	// reachable.
	endpointDelay time.Duration
	// reachableSince is zero while no replica is reachable.
	reachableSince time.Time
	// registered is set while the API server calls the pod webhook, and trusts it.
	registered atomic.Bool

	serving atomic.Pointer[tls.Certificate]
	// servedCA has signed what is served.
	servedCA []byte
	// trusted is the newest CA that the configurations trust, and since when.
	trusted struct {
		ca    []byte
		since time.Time
	}
	// conversionWritten is when the conversion in the definition was last corrected.
	conversionWritten time.Time
	sets              *setWatch
}

// New makes a reconciler. An URL without https and a host name is an error.
func New(o Options) (*Reconciler, error) {
	authority, err := newAuthority(o.ServiceName, o.SystemNamespace, o.URL)
	if err != nil {
		return nil, err
	}
	made := &Reconciler{
		secret:    client.ObjectKey{Namespace: o.SystemNamespace, Name: certificateSecret},
		authority: authority,
		endpoint:  endpoint{url: o.URL, service: o.ServiceName, namespace: o.SystemNamespace},
		log:       o.Log,
		now:       time.Now,
		sets:      &setWatch{now: time.Now},
	}
	if o.URL == "" {
		made.endpointDelay = endpointDelay
	}
	return made, nil
}

var errNotRegistered = errors.New("the API server does not ask about pods yet")

// Registered is a readiness check for processes outside the cluster, to which no
// Service routes.
func (r *Reconciler) Registered(*http.Request) error {
	if r.registered.Load() {
		return nil
	}
	return errNotRegistered
}

// Certificate is for tls.Config.
func (r *Reconciler) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := r.serving.Load(); pair != nil {
		return pair, nil
	}
	return nil, errNoCertificate
}

// Reconcile takes the next step; each write brings the event for the one after.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	secret, err := r.currentSecret(ctx)
	if err != nil || secret == nil {
		return reconcile.Result{}, ignoreRace(err)
	}
	seen, err := r.observe(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !seen.callsPodWebhook() {
		if err := r.serveInitial(secret); err != nil {
			return reconcile.Result{}, err
		}
		if wait, err := r.untilReachable(ctx); err != nil || wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, err
		}
	}
	wait, err := r.register(ctx, seen, bundle(secret.Data, r.now()))
	if err != nil || wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, ignoreRace(err)
	}
	if wait, err = r.serveTrusted(ctx, secret); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: cmp.Or(wait, renewalRequeueDelay)}, nil
}

// untilReachable is how long to wait before rules may be written.
func (r *Reconciler) untilReachable(ctx context.Context) (time.Duration, error) {
	yes, err := r.reachable(ctx)
	if err != nil || !yes {
		r.reachableSince = time.Time{}
		return reachableRequeueDelay, err
	}
	if r.reachableSince.IsZero() {
		r.reachableSince = r.now()
	}
	return r.reachableSince.Add(r.endpointDelay).Sub(r.now()), nil
}

// register writes the conversion, and then CA and rules into the configurations. It
// returns how long these have to wait.
func (r *Reconciler) register(ctx context.Context, seen *observed, bundle []byte) (time.Duration, error) {
	if err := r.writeConversion(ctx, r.endpoint.conversion(bundle)); err != nil {
		return 0, err
	}
	// Pods that come while no set can be seen would go without their sidecars.
	if r.watchEnding() && !seen.callsPodWebhook() {
		return watchRequeueDelay, nil
	}
	return 0, r.writeConfigurations(ctx, seen, bundle)
}

// watchEnding reports whether the watch of SidecarSets may be one that the API server
// is about to end.
func (r *Reconciler) watchEnding() bool {
	return r.now().Sub(r.conversionWritten) < watchRestartTimeout && !r.sets.lastRequest().After(r.conversionWritten)
}

// ignoreRace forgets that another replica was first: its write is on the way
// here as an event.
func ignoreRace(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// currentSecret returns the Secret, or nil after it wrote a new certificate.
func (r *Reconciler) currentSecret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.client.Get(ctx, r.secret, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, fmt.Errorf("read Secret %s: %w", r.secret, err)
	}
	if r.authority.valid(secret.Data, r.now()) {
		return secret, nil
	}
	// A Secret that was deleted or replaced no longer knows what is served.
	data, err := r.authority.issue(r.now(), secret.Data[caKey], r.servedCA)
	if err != nil {
		return nil, err
	}
	secret = secret.DeepCopy()
	secret.Data = data
	if missing {
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: r.secret.Namespace, Name: r.secret.Name}
		secret.Type = corev1.SecretTypeTLS
		err = r.client.Create(ctx, secret)
	} else {
		err = r.client.Update(ctx, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("write the webhook's certificate to Secret %s: %w", r.secret, err)
	}
	return nil, nil
}

// writeConfigurations corrects what this role owns of the webhooks.
func (r *Reconciler) writeConfigurations(ctx context.Context, seen *observed, bundle []byte) error {
	if seen.mutating == nil || seen.validating == nil {
		r.log.Info("Pods get no sidecars, because the webhook configurations are not installed: apply config/webhook", "name", configurationName)
	}
	if seen.mutating != nil {
		outdated, err := r.endpoint.outdated(ownedMutating(), mutatingInstalled(seen.mutating), bundle)
		if err == nil && outdated {
			err = r.apply(ctx, r.endpoint.mutating(seen.mutating, bundle))
		}
		if err != nil {
			return fmt.Errorf("write MutatingWebhookConfiguration %s: %w", configurationName, err)
		}
	}
	if seen.validating != nil {
		outdated, err := r.endpoint.outdated(ownedValidating(), validatingInstalled(seen.validating), bundle)
		if err == nil && outdated {
			err = r.apply(ctx, r.endpoint.validating(seen.validating, bundle))
		}
		if err != nil {
			return fmt.Errorf("write ValidatingWebhookConfiguration %s: %w", configurationName, err)
		}
	}
	return nil
}

func (r *Reconciler) apply(ctx context.Context, applied runtime.ApplyConfiguration) error {
	return r.client.Apply(ctx, applied, client.FieldOwner(fieldOwner), client.ForceOwnership)
}
