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

// renewalCheck is how often the age of the certificate is looked at.
const renewalCheck = time.Hour

// spreadTime is how long API servers may take to hear of a new CA. Until then the
// certificate before is served, which they trust as well.
const spreadTime = 10 * time.Second

// watchGap bounds how long sets may be without a watch once the definition was
// changed: the API server ends the watches of SidecarSets after a second, and a
// client that is cut off waits, again for seconds, before it asks anew.
const (
	watchGap   = 10 * time.Second
	watchCheck = 50 * time.Millisecond
)

// answerCheck is how often it is looked whether somebody answers.
const answerCheck = 200 * time.Millisecond

var errNoCertificate = errors.New("the webhook has no certificate yet")

// fieldOwner is the field manager of what this role writes into the
// configurations.
const fieldOwner = "outrigger-webhook"

// keeper keeps the certificate and what the API server knows of it in step,
// together with the other replicas: whoever comes first writes, the others follow
// what they see. The API server is told to ask only once somebody would answer.
// From then on a new certificate is served only once the API server's copy of the
// configurations trusts its CA, so that no request falls between the two.
type keeper struct {
	// client reads from the cache.
	client    client.Client
	secret    client.ObjectKey
	authority authority
	at        endpoint
	log       logr.Logger
	now       func() time.Time
	// answers reports whether a request of the API server would be answered.
	answers func(context.Context) (bool, error)
	// settling is how long it may take from then until all API servers know where.
	settling time.Duration
	// answered is since when somebody answers.
	answered time.Time
	// asked reports whether the API server asks about pods, and trusts the answers.
	asked atomic.Bool

	serving atomic.Pointer[tls.Certificate]
	// servedCA has signed what is served.
	servedCA []byte
	// told is the newest CA that the configurations trust, and since when.
	told struct {
		ca    []byte
		since time.Time
	}
	// redefined is when the definition was last seen in need of a change.
	redefined time.Time
	sets      *setWatch
}

var errNotRegistered = errors.New("the API server does not ask about pods yet")

// Registered is a readiness check for where nobody routes by readiness.
func (k *keeper) Registered(*http.Request) error {
	if k.asked.Load() {
		return nil
	}
	return errNotRegistered
}

// certificate is for tls.Config.
func (k *keeper) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := k.serving.Load(); pair != nil {
		return pair, nil
	}
	return nil, errNoCertificate
}

// addTo has the manager run the keeper whenever one of its objects changes, and
// at the start, when none of them may exist.
func (k *keeper) addTo(mgr manager.Manager) error {
	request := reconcile.Request{NamespacedName: k.secret}
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
		Complete(k)
	if err != nil {
		return fmt.Errorf("set up the keeper of certificate and configurations: %w", err)
	}
	return nil
}

// Reconcile takes the next step; each write brings the event for the one after.
func (k *keeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	secret, err := k.currentSecret(ctx)
	if err != nil || secret == nil {
		return reconcile.Result{}, ignoreRace(err)
	}
	seen, err := k.look(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !seen.asks() {
		if err := k.serveFirst(secret); err != nil {
			return reconcile.Result{}, err
		}
		if wait, err := k.unanswered(ctx); err != nil || wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, err
		}
	}
	wait, err := k.register(ctx, seen, bundle(secret.Data, k.now()))
	if err != nil || wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, ignoreRace(err)
	}
	if wait, err = k.serveTrusted(ctx, secret); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: cmp.Or(wait, renewalCheck)}, nil
}

// unanswered is how long to wait before the API server may be told to ask.
func (k *keeper) unanswered(ctx context.Context) (time.Duration, error) {
	yes, err := k.answers(ctx)
	if err != nil || !yes {
		k.answered = time.Time{}
		return answerCheck, err
	}
	if k.answered.IsZero() {
		k.answered = k.now()
	}
	return k.answered.Add(k.settling).Sub(k.now()), nil
}

// register tells the API server whom to trust, and to ask. It returns how long
// that has to wait.
func (k *keeper) register(ctx context.Context, seen *registration, bundle []byte) (time.Duration, error) {
	if err := k.writeConversion(ctx, k.at.conversion(bundle)); err != nil {
		return 0, err
	}
	// Pods that come while no set can be seen would go without their sidecars.
	if k.blind() && !seen.asks() {
		return watchCheck, nil
	}
	return 0, k.writeConfigurations(ctx, seen, bundle)
}

// blind reports whether the watch of SidecarSets is one that the API server ends.
func (k *keeper) blind() bool {
	return k.now().Sub(k.redefined) < watchGap && !k.sets.since().After(k.redefined)
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
func (k *keeper) currentSecret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := k.client.Get(ctx, k.secret, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, fmt.Errorf("read Secret %s: %w", k.secret, err)
	}
	if k.authority.valid(secret.Data, k.now()) {
		return secret, nil
	}
	// A Secret that was deleted or replaced no longer knows what is served.
	data, err := k.authority.issue(k.now(), secret.Data[caKey], k.servedCA)
	if err != nil {
		return nil, err
	}
	secret = secret.DeepCopy()
	secret.Data = data
	if missing {
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: k.secret.Namespace, Name: k.secret.Name}
		secret.Type = corev1.SecretTypeTLS
		err = k.client.Create(ctx, secret)
	} else {
		err = k.client.Update(ctx, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("write the webhook's certificate to Secret %s: %w", k.secret, err)
	}
	return nil, nil
}

// registration is what the API server has of the webhooks; what is not installed
// is nil.
type registration struct {
	mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
	conversion *apiextensionsv1.CustomResourceConversion
}

func (k *keeper) look(ctx context.Context) (*registration, error) {
	definition, err := k.definition(ctx)
	if err != nil {
		return nil, err
	}
	seen := &registration{
		mutating:   &admissionregistrationv1.MutatingWebhookConfiguration{},
		validating: &admissionregistrationv1.ValidatingWebhookConfiguration{},
		conversion: definition.Spec.Conversion,
	}
	key := client.ObjectKey{Name: configurationName}
	if err := k.client.Get(ctx, key, seen.mutating); apierrors.IsNotFound(err) {
		seen.mutating = nil
	} else if err != nil {
		return nil, fmt.Errorf("read MutatingWebhookConfiguration %s: %w", configurationName, err)
	}
	if err := k.client.Get(ctx, key, seen.validating); apierrors.IsNotFound(err) {
		seen.validating = nil
	} else if err != nil {
		return nil, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", configurationName, err)
	}
	return seen, nil
}

// asks reports whether the API server asks about pods.
func (r *registration) asks() bool {
	if r.mutating == nil {
		return false
	}
	pods := find(podHook, mutatingInstalled(r.mutating))
	return pods != nil && len(pods.rules) > 0
}

// trusts reports whether every webhook that is installed trusts a CA.
func (r *registration) trusts(ca []byte) bool {
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
func (k *keeper) writeConfigurations(ctx context.Context, seen *registration, bundle []byte) error {
	if seen.mutating == nil || seen.validating == nil {
		k.log.Info("Pods get no sidecars, because the webhook configurations are not installed: apply config/webhook", "name", configurationName)
	}
	if seen.mutating != nil {
		behind, err := k.at.behind(mutatingHooks(), mutatingInstalled(seen.mutating), bundle)
		if err == nil && behind {
			err = k.apply(ctx, k.at.mutating(seen.mutating, bundle))
		}
		if err != nil {
			return fmt.Errorf("write MutatingWebhookConfiguration %s: %w", configurationName, err)
		}
	}
	if seen.validating != nil {
		behind, err := k.at.behind(validatingHooks(), validatingInstalled(seen.validating), bundle)
		if err == nil && behind {
			err = k.apply(ctx, k.at.validating(seen.validating, bundle))
		}
		if err != nil {
			return fmt.Errorf("write ValidatingWebhookConfiguration %s: %w", configurationName, err)
		}
	}
	return nil
}

func (k *keeper) apply(ctx context.Context, applied runtime.ApplyConfiguration) error {
	return k.client.Apply(ctx, applied, client.FieldOwner(fieldOwner), client.ForceOwnership)
}

// serveTrusted switches to the Secret's certificate once the configurations, as
// the API server has sent them back, trust its CA, and all API servers have had
// the time to hear of it. It returns how long that will take.
func (k *keeper) serveTrusted(ctx context.Context, secret *corev1.Secret) (time.Duration, error) {
	seen, err := k.look(ctx)
	if err != nil {
		return 0, err
	}
	ca := secret.Data[caKey]
	trusted := seen.trusts(ca)
	k.asked.Store(trusted && seen.asks())
	if !trusted {
		return 0, nil
	}
	if wait := k.untilHeard(ca); wait > 0 && seen.trusts(k.servedCA) {
		return wait, nil
	}
	return 0, k.serve(secret)
}

// serveFirst takes whatever there is, as long as nobody relies on anything.
func (k *keeper) serveFirst(secret *corev1.Secret) error {
	if k.servedCA != nil {
		return nil
	}
	return k.serve(secret)
}

func (k *keeper) serve(secret *corev1.Secret) error {
	if bytes.Equal(k.servedCA, secret.Data[caKey]) {
		return nil
	}
	pair, err := keyPair(secret.Data)
	if err != nil {
		return err
	}
	k.serving.Store(pair)
	k.servedCA = secret.Data[caKey]
	return nil
}

// untilHeard is how long a trusted CA has yet to wait for its certificate to be
// served. The first one need not: nobody relies on another.
func (k *keeper) untilHeard(ca []byte) time.Duration {
	if !bytes.Equal(k.told.ca, ca) {
		k.told.ca, k.told.since = ca, k.now()
	}
	if k.servedCA == nil || bytes.Equal(k.servedCA, ca) {
		return 0
	}
	return max(0, spreadTime-k.now().Sub(k.told.since))
}
