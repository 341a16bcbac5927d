package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
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

var errNoCertificate = errors.New("the webhook has no certificate yet")

// keeper keeps the certificate and the webhook configurations in step, together
// with the other replicas: whoever comes first writes, the others follow what
// they see. A new certificate is served only once the API server's copy of the
// configurations trusts its CA, so that no request falls between the two.
type keeper struct {
	// client reads from the cache.
	client    client.Client
	secret    client.ObjectKey
	authority authority
	desired   *configurations
	now       func() time.Time

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
	// first is closed when there is a certificate to serve.
	first     chan struct{}
	closeOnce sync.Once
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
	want := k.desired.trusting(bundle(secret.Data, k.now()))
	if err := k.writeConversion(ctx, want.conversion); err != nil {
		return reconcile.Result{}, ignoreRace(err)
	}
	// Pods that come while no set can be seen would go without their sidecars.
	if k.blind() && k.servedCA == nil {
		return reconcile.Result{RequeueAfter: watchCheck}, nil
	}
	if err := k.writeConfigurations(ctx, want); err != nil {
		return reconcile.Result{}, ignoreRace(err)
	}
	wait, err := k.serve(ctx, secret)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: cmp.Or(wait, renewalCheck)}, nil
}

// blind tells whether the watch of SidecarSets is one that the API server ends.
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

// writeConfigurations creates or corrects the configurations. Labels and
// annotations that others put there stay.
func (k *keeper) writeConfigurations(ctx context.Context, want *configurations) error {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configurationName}}
	_, err := controllerutil.CreateOrUpdate(ctx, k.client, mutating, func() error {
		mutating.Webhooks = want.mutating.Webhooks
		return nil
	})
	if err != nil {
		return fmt.Errorf("write MutatingWebhookConfiguration %s: %w", configurationName, err)
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configurationName}}
	_, err = controllerutil.CreateOrUpdate(ctx, k.client, validating, func() error {
		validating.Webhooks = want.validating.Webhooks
		return nil
	})
	if err != nil {
		return fmt.Errorf("write ValidatingWebhookConfiguration %s: %w", configurationName, err)
	}
	return nil
}

// serve switches to the Secret's certificate once the configurations, as the
// API server has sent them back, trust its CA, and all API servers have had the
// time to hear of it. It returns how long that will take.
func (k *keeper) serve(ctx context.Context, secret *corev1.Secret) (time.Duration, error) {
	definition, err := k.definition(ctx)
	if err != nil {
		return 0, err
	}
	seen := configurations{
		conversion: definition.Spec.Conversion,
		mutating:   &admissionregistrationv1.MutatingWebhookConfiguration{},
		validating: &admissionregistrationv1.ValidatingWebhookConfiguration{},
	}
	for _, object := range []client.Object{seen.mutating, seen.validating} {
		if err := k.client.Get(ctx, client.ObjectKey{Name: configurationName}, object); err != nil {
			return 0, client.IgnoreNotFound(err)
		}
	}
	ca := secret.Data[caKey]
	if !seen.trusts(ca) {
		return 0, nil
	}
	if wait := k.untilHeard(ca); wait > 0 && seen.trusts(k.servedCA) {
		return wait, nil
	}
	pair, err := keyPair(secret.Data)
	if err != nil {
		return 0, err
	}
	k.serving.Store(pair)
	k.servedCA = ca
	k.closeOnce.Do(func() { close(k.first) })
	return 0, nil
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
