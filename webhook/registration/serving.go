package registration

import (
	"bytes"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// serveTrusted switches to the Secret's certificate once the configurations, as
// the API server has sent them back, trust its CA, and all API servers have had
// the time to see it. It returns how long that will take.
func (r *Reconciler) serveTrusted(ctx context.Context, secret *corev1.Secret) (time.Duration, error) {
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

// serveInitial serves the certificate of the Secret while none was served yet: no
// configuration trusts another one.
func (r *Reconciler) serveInitial(secret *corev1.Secret) error {
	if r.servedCA != nil {
		return nil
	}
	return r.serve(secret)
}

func (r *Reconciler) serve(secret *corev1.Secret) error {
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
// served. The first one need not wait: none is trusted before it.
func (r *Reconciler) untilPropagated(ca []byte) time.Duration {
	if !bytes.Equal(r.trusted.ca, ca) {
		r.trusted.ca, r.trusted.since = ca, r.now()
	}
	if r.servedCA == nil || bytes.Equal(r.servedCA, ca) {
		return 0
	}
	return max(0, propagationDelay-r.now().Sub(r.trusted.since))
}
