package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
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

// reachableRequeueDelay is how often it is checked whether a replica is reachable.
const reachableRequeueDelay = 200 * time.Millisecond

var errNoCertificate = errors.New("the webhook has no certificate yet")

// fieldOwner is the field manager of what this role writes into the
// configurations.
const fieldOwner = "outrigger-webhook"

// reconciler writes the certificate and the registration of the webhooks, together
// with the other replicas: one that loses the race follows what it sees. Rules are
// written only once a replica is reachable. From then on a new certificate is
// served only once the API server's copy of the configurations trusts its CA, so
// that no request meets a certificate that is not trusted.
type reconciler struct {
	// client reads from the cache.
	client    client.Client
	secret    client.ObjectKey
	authority authority
	at        endpoint
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

var errNotRegistered = errors.New("the API server does not ask about pods yet")

// Registered is a readiness check for where nobody routes by readiness.
func (r *reconciler) Registered(*http.Request) error {
	if r.registered.Load() {
		return nil
	}
	return errNotRegistered
}

// certificate is for tls.Config.
func (r *reconciler) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := r.serving.Load(); pair != nil {
		return pair, nil
	}
	return nil, errNoCertificate
}

// addTo has the manager run the reconciler whenever one of its objects changes, and
// at the start, when none of them may exist.
func (r *reconciler) addTo(mgr manager.Manager) error {
	request := reconcile.Request{NamespacedName: r.secret}
	toSecret := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{request}
	})
	atStart := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(request)
		return nil
	})
	err := builder.ControllerManagedBy(mgr).Named("webhook-keeper").
		Watches(&corev1.Secret{}, toSecret).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, toSecret).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, toSecret).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, toSecret).
		WatchesRawSource(atStart).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of certificate and configurations: %w", err)
	}
	return nil
}

// Reconcile takes the next step; each write brings the event for the one after.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
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
func (r *reconciler) untilReachable(ctx context.Context) (time.Duration, error) {
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
func (r *reconciler) register(ctx context.Context, seen *observed, bundle []byte) (time.Duration, error) {
	if err := r.writeConversion(ctx, r.at.conversion(bundle)); err != nil {
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
func (r *reconciler) watchEnding() bool {
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
func (r *reconciler) currentSecret(ctx context.Context) (*corev1.Secret, error) {
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

// observed is what the API server has of the webhooks; what is not installed
// is nil.
type observed struct {
	mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
	conversion *apiextensionsv1.CustomResourceConversion
}

func (r *reconciler) observe(ctx context.Context) (*observed, error) {
	definition, err := r.definition(ctx)
	if err != nil {
		return nil, err
	}
	seen := &observed{
		mutating:   &admissionregistrationv1.MutatingWebhookConfiguration{},
		validating: &admissionregistrationv1.ValidatingWebhookConfiguration{},
		conversion: definition.Spec.Conversion,
	}
	key := client.ObjectKey{Name: configurationName}
	if err := r.client.Get(ctx, key, seen.mutating); apierrors.IsNotFound(err) {
		seen.mutating = nil
	} else if err != nil {
		return nil, fmt.Errorf("read MutatingWebhookConfiguration %s: %w", configurationName, err)
	}
	if err := r.client.Get(ctx, key, seen.validating); apierrors.IsNotFound(err) {
		seen.validating = nil
	} else if err != nil {
		return nil, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", configurationName, err)
	}
	return seen, nil
}

// callsPodWebhook reports whether the API server asks about pods.
func (r *observed) callsPodWebhook() bool {
	if r.mutating == nil {
		return false
	}
	pods := find(podHook, mutatingInstalled(r.mutating))
	return pods != nil && len(pods.rules) > 0
}

// trusts reports whether every webhook that is installed trusts a CA.
func (r *observed) trusts(ca []byte) bool {
	if r.conversion == nil {
		return false
	}
	if hook := r.conversion.Webhook; hook == nil || !bytes.Contains(hook.ClientConfig.CABundle, ca) {
		return false
	}
	var all []installed
	if r.mutating != nil {
		all = mutatingInstalled(r.mutating)
	}
	if r.validating != nil {
		all = append(all, validatingInstalled(r.validating)...)
	}
	return !slices.ContainsFunc(all, func(i installed) bool { return !bytes.Contains(i.client.CABundle, ca) })
}

// writeConfigurations corrects what this role owns of the webhooks.
func (r *reconciler) writeConfigurations(ctx context.Context, seen *observed, bundle []byte) error {
	if seen.mutating == nil || seen.validating == nil {
		r.log.Info("Pods get no sidecars, because the webhook configurations are not installed: apply config/webhook", "name", configurationName)
	}
	if seen.mutating != nil {
		outdated, err := r.at.outdated(mutatingHooks(), mutatingInstalled(seen.mutating), bundle)
		if err == nil && outdated {
			err = r.apply(ctx, r.at.mutating(seen.mutating, bundle))
		}
		if err != nil {
			return fmt.Errorf("write MutatingWebhookConfiguration %s: %w", configurationName, err)
		}
	}
	if seen.validating != nil {
		outdated, err := r.at.outdated(validatingHooks(), validatingInstalled(seen.validating), bundle)
		if err == nil && outdated {
			err = r.apply(ctx, r.at.validating(seen.validating, bundle))
		}
		if err != nil {
			return fmt.Errorf("write ValidatingWebhookConfiguration %s: %w", configurationName, err)
		}
	}
	return nil
}

func (r *reconciler) apply(ctx context.Context, applied runtime.ApplyConfiguration) error {
	return r.client.Apply(ctx, applied, client.FieldOwner(fieldOwner), client.ForceOwnership)
}

// serveTrusted switches to the Secret's certificate once the configurations, as
// the API server has sent them back, trust its CA, and all API servers have had
// the time to hear of it. It returns how long that will take.
func (r *reconciler) serveTrusted(ctx context.Context, secret *corev1.Secret) (time.Duration, error) {
	seen, err := r.observe(ctx)
	if err != nil {
		return 0, err
	}
	ca := secret.Data[caKey]
	trusted := seen.trusts(ca)
	r.registered.Store(trusted && seen.callsPodWebhook())
	if !trusted {
		return 0, nil
	}
	if wait := r.untilPropagated(ca); wait > 0 && seen.trusts(r.servedCA) {
		return wait, nil
	}
	return 0, r.serve(secret)
}

// serveInitial takes whatever there is, as long as nobody relies on anything.
func (r *reconciler) serveInitial(secret *corev1.Secret) error {
	if r.servedCA != nil {
		return nil
	}
	return r.serve(secret)
}

func (r *reconciler) serve(secret *corev1.Secret) error {
	if bytes.Equal(r.servedCA, secret.Data[caKey]) {
		return nil
	}
	pair, err := keyPair(secret.Data)
	if err != nil {
		return err
	}
	r.serving.Store(pair)
	r.servedCA = secret.Data[caKey]
	return nil
}

// untilPropagated is how long a trusted CA has yet to wait for its certificate to be
// served. The first one need not: nobody relies on another.
func (r *reconciler) untilPropagated(ca []byte) time.Duration {
	if !bytes.Equal(r.trusted.ca, ca) {
		r.trusted.ca, r.trusted.since = ca, r.now()
	}
	if r.servedCA == nil || bytes.Equal(r.servedCA, ca) {
		return 0
	}
	return max(0, propagationDelay-r.now().Sub(r.trusted.since))
}
