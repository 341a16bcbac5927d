package registration

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// certificateSecret is the name of the Secret with the serving certificate of all replicas.
const certificateSecret = "outrigger-webhook-cert"

// fieldOwner is the field manager of this role in the configurations.
const fieldOwner = "outrigger-webhook"

const (
	// renewalInterval is the time between two checks of the certificate's age.
	renewalInterval = time.Hour
	// propagationDelay is the time that all API servers need to observe a new CA. During this time,
	// replicas serve the previous certificate, because API servers still trust the CA of the previous
	// certificate.
	propagationDelay = 10 * time.Second
	// endpointDelay is the time that nodes need to route to the first endpoint of the Service.
	endpointDelay = 5 * time.Second
	// reachableInterval is the time between two checks for a reachable replica.
	reachableInterval = 200 * time.Millisecond
	// After a change of the definition, the API server ends the watches of SidecarSets within
	// about a second. Clients reconnect after a backoff. watchRestartTimeout limits the wait for
	// the new watch. watchRestartInterval is the time between two checks.
	watchRestartTimeout  = 10 * time.Second
	watchRestartInterval = 50 * time.Millisecond
)

var (
	errNoCertificate = errors.New("the webhook has no certificate yet")
	errNotRegistered = errors.New("the API server does not call the pod webhook yet")
)

// Options are the options of a Reconciler.
type Options struct {
	// URL is the address of this process for API servers if the process runs outside the cluster.
	// If URL is empty, API servers use the Service.
	URL string
	// ServiceName is the name of the Service in SystemNamespace. SystemNamespace also contains
	// the Secret with the certificate.
	ServiceName, SystemNamespace string
	// ExternalCertificate is true if another controller, such as cert-manager, writes the Secret.
	ExternalCertificate bool
	// MatchConditions is true if API servers call the webhook only for pods that a SidecarSet can select.
	MatchConditions bool
	Log             logr.Logger
	// Registerer registers the metrics of the registration.
	Registerer prometheus.Registerer
}

// Reconciler writes the certificate and the registration of the webhooks. Every replica runs a Reconciler. If
// two replicas write at the same time, the replica whose write is rejected uses the result of the other write.
// The pod webhook is activated only after a replica is reachable. After the activation, a replica serves a new
// certificate only when the configurations trust the CA of this certificate. Otherwise, requests would fail
// because of an untrusted certificate.
type Reconciler struct {
	// client reads from the cache, and live reads from the API server.
	client   client.Client
	live     client.Reader
	secret   client.ObjectKey
	issuer   issuer
	external bool
	endpoint endpoint
	log      logr.Logger
	now      func() time.Time
	// reachable reports whether API servers can reach a replica.
	reachable func(context.Context) (bool, error)
	// endpointDelay is 0 if a URL is set.
	endpointDelay time.Duration
	// reachableSince is zero while no replica is reachable.
	reachableSince time.Time
	// registered is true while the API server calls the pod webhook and trusts the CA in the Secret.
	registered atomic.Bool

	serving atomic.Pointer[tls.Certificate]
	// servedChain is the serving certificate, and servedCA is the CA of the serving certificate.
	servedChain, servedCA []byte
	// trustedCA is the newest CA that the configurations trust. The configurations have trusted
	// this CA since trustedSince.
	trustedCA    []byte
	trustedSince time.Time
	// conversionWritten is the time of the last change of the conversion. watchLost is true once the watch of
	// SidecarSets has been interrupted after this change. conversionMissing is true if the definition had no
	// conversion in the last step.
	conversionWritten time.Time
	watchLost         bool
	conversionMissing bool
	// conversionClaimed is set once the definition has contained the conversion of this role. conversionLost
	// is the time at which the definition lost its conversion.
	conversionClaimed bool
	conversionLost    time.Time
	// conversionBackoff is the delay before the next write that replaces the conversion of another controller.
	conversionBackoff time.Duration
	// watchDown returns the time for which the watch of SidecarSets has been down.
	watchDown func() time.Duration
	// matchConditions is set if the match condition is derived from the SidecarSets.
	matchConditions bool
	observed        observedCondition
}

// New returns a Reconciler. New returns an error for a URL without https or without a host name.
func New(o Options) (*Reconciler, error) {
	issuer, err := newIssuer(o.ServiceName, o.SystemNamespace, o.URL)
	if err != nil {
		return nil, err
	}
	r := &Reconciler{
		secret:   client.ObjectKey{Namespace: o.SystemNamespace, Name: certificateSecret},
		issuer:   issuer,
		external: o.ExternalCertificate,
		endpoint: endpoint{url: o.URL, service: o.ServiceName, namespace: o.SystemNamespace},
		log:      o.Log,
		now:      time.Now,

		matchConditions: o.MatchConditions,
	}
	if o.URL == "" {
		r.endpointDelay = endpointDelay
	}
	r.registerMetrics(o.Registerer)
	return r, nil
}

// Registered is a readiness check for a process outside the cluster, to which no Service routes requests.
func (r *Reconciler) Registered(*http.Request) error {
	if !r.registered.Load() {
		return errNotRegistered
	}
	return nil
}

// Certificate returns the serving certificate, and implements tls.Config.GetCertificate. While no certificate
// is served, Certificate returns an error.
func (r *Reconciler) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := r.serving.Load(); pair != nil {
		return pair, nil
	}
	return nil, errNoCertificate
}

// Reconcile executes the next step of the registration. Each write causes a watch event, which triggers the
// next reconcile.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	wait, err := r.step(ctx)
	// After a conflict, the write of the other replica causes a watch event, which triggers the next
	// reconcile.
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		err = nil
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

func (r *Reconciler) step(ctx context.Context) (wait time.Duration, err error) {
	secret, err := r.currentSecret(ctx)
	if err != nil || secret == nil {
		return 0, err
	}
	live, err := r.read(ctx)
	if err != nil {
		return 0, err
	}
	r.noteConversion(live.definition)
	active := live.callsPodWebhook()
	if !active {
		if wait, err := r.untilReachable(ctx, secret); err != nil || wait > 0 {
			return wait, err
		}
	}
	bundle := bundle(secret.Data, live.trusted(), r.now())
	claim, err := r.writeConversion(ctx, live.definition, bundle)
	if err != nil {
		return 0, err
	}
	// Until the watch has restarted, the cache may miss SidecarSets. If the pod webhook were
	// activated now, new pods would be admitted without these SidecarSets.
	if !active && r.watchRestarting() {
		return watchRestartInterval, nil
	}
	if len(live.configurations) < 2 {
		r.log.Info("pods get no sidecars, because the webhook configurations are not installed: apply config/webhook", "name", configurationName)
	}
	next := cmp.Or(claim, renewalInterval)
	for _, configuration := range live.configurations {
		if wait, err = r.writeConfiguration(ctx, configuration, bundle); err != nil {
			return 0, err
		}
		next = min(next, cmp.Or(wait, next))
	}
	if wait, err = r.serveTrusted(ctx, secret); err != nil {
		return 0, err
	}
	return min(next, cmp.Or(wait, next)), nil
}

// untilReachable returns the time until the rules of the pod webhook may be written. untilReachable serves the
// certificate before that, because only a serving replica becomes reachable. No request fails because of this
// certificate, because no configuration trusts another CA yet.
func (r *Reconciler) untilReachable(ctx context.Context, secret *corev1.Secret) (time.Duration, error) {
	if r.servedCA == nil {
		if err := r.serve(secret); err != nil {
			return 0, err
		}
	}
	reachable, err := r.reachable(ctx)
	if err != nil || !reachable {
		r.reachableSince = time.Time{}
		return reachableInterval, err
	}
	if r.reachableSince.IsZero() {
		r.reachableSince = r.now()
	}
	return r.reachableSince.Add(r.endpointDelay).Sub(r.now()), nil
}

// watchRestarting reports whether the watch of SidecarSets has not restarted since the
// conversion was written.
func (r *Reconciler) watchRestarting() bool {
	now, down := r.now(), r.watchDown()
	r.watchLost = r.watchLost || down > 0 && now.Add(-down).After(r.conversionWritten)
	restarted := r.watchLost && down == 0
	return !restarted && now.Sub(r.conversionWritten) < watchRestartTimeout
}

// currentSecret returns the Secret, or nil after writing a new certificate.
func (r *Reconciler) currentSecret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.client.Get(ctx, r.secret, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, fmt.Errorf("read Secret %s: %w", r.secret, err)
	}
	if r.external {
		if err := r.issuer.verify(secret.Data, r.now()); err != nil {
			return nil, fmt.Errorf("use the certificate of Secret %s, which another controller writes (--external-certificate): %w", r.secret, err)
		}
		return secret, nil
	}
	if r.issuer.verify(secret.Data, r.now(), r.now().Add(renewBefore)) == nil {
		return secret, nil
	}
	// The new Secret must also contain the CA of the serving certificate. A Secret that was
	// deleted or replaced does not contain this CA.
	data, err := r.issuer.issue(r.now(), secret.Data[caKey], r.servedCA)
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

// serveTrusted serves the certificate of the Secret once the configurations in the cache trust the CA in
// the Secret, and all API servers have had time to observe this CA. serveTrusted returns the remaining
// time.
func (r *Reconciler) serveTrusted(ctx context.Context, secret *corev1.Secret) (time.Duration, error) {
	live, err := r.read(ctx)
	if err != nil {
		return 0, err
	}
	ca := secret.Data[caKey]
	trusted := live.trusts(ca)
	r.registered.Store(trusted && live.callsPodWebhook())
	if !trusted {
		return 0, nil
	}
	if !bytes.Equal(r.trustedCA, ca) {
		r.trustedCA, r.trustedSince = ca, r.now()
	}
	// A replica serves the new certificate immediately if the replica has no certificate, or if the API server
	// does not trust the current certificate.
	renewal := !bytes.Equal(r.servedCA, ca) && r.servesTrusted(live)
	if wait := propagationDelay - r.now().Sub(r.trustedSince); renewal && wait > 0 {
		return wait, nil
	}
	return 0, r.serve(secret)
}

// servesTrusted reports whether the API server trusts the serving certificate. The ca.crt of this
// certificate may contain further CAs, including expired CAs.
func (r *Reconciler) servesTrusted(live *registered) bool {
	pair := r.serving.Load()
	if pair == nil {
		return false
	}
	var trusted []byte
	for _, ca := range certificates(r.servedCA) {
		if live.trusts(encode(ca)) {
			trusted = add(trusted, ca)
		}
	}
	return r.issuer.verifyPair(pair, trusted, r.now()) == nil
}

func (r *Reconciler) serve(secret *corev1.Secret) error {
	chain, ca := secret.Data[corev1.TLSCertKey], secret.Data[caKey]
	if bytes.Equal(r.servedChain, chain) && bytes.Equal(r.servedCA, ca) {
		return nil
	}
	pair, err := keyPair(secret.Data)
	if err != nil {
		return err
	}
	r.serving.Store(pair)
	r.servedChain, r.servedCA = chain, ca
	return nil
}
