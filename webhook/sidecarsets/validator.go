package sidecarsets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/validation"
	"github.com/outrigger/outrigger/webhook/fallback"
)

// validationTimeout limits all checks of one SidecarSet. validationTimeout is well below the
// timeout of the API server.
const validationTimeout = 3 * time.Second

// Validator rejects invalid SidecarSets. Updates of SidecarSets that are stored with errors
// are rejected only for new errors.
type Validator struct {
	Decoder admission.Decoder
	// Sets reads the other SidecarSets to find conflicts.
	Sets fallback.Reader
	// Revisions reads pinned revisions.
	Revisions fallback.Revisions
	// Cached reads the whitelist.
	Cached client.Reader
	// Client creates pods in a dry run.
	Client          client.Client
	Gates           FeatureGates
	SystemNamespace string
	// Widen makes API servers call the webhook for the pods in the condition. Widen is nil if API servers call
	// the webhook for every pod.
	Widen func(context.Context, match.Condition) error

	admitted admittedSet
}

// Handle rejects an invalid SidecarSet with all errors, each with its field. If a check cannot run, Handle
// rejects the SidecarSet, too.
func (v *Validator) Handle(request context.Context, req admission.Request) admission.Response {
	ctx, cancel := context.WithTimeout(request, validationTimeout)
	defer cancel()
	set := &v1alpha1.SidecarSet{}
	if err := v.Decoder.Decode(req, set); err != nil {
		return undecodable(&req, err)
	}
	stored := storedSet(v.Decoder, &req)
	ratchet := validation.NewRatchet(set, stored)
	unchecked := v.compare(ctx, ratchet, set)
	causes := ratchet.Rejected()
	rejected, err := v.rejectedInDryRun(ctx, &req, ratchet, causes)
	causes, unchecked = append(causes, rejected...), errors.Join(unchecked, err)
	if len(causes) > 0 {
		return invalid(set.Name, causes)
	}
	if unchecked != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("SidecarSet %s cannot be checked: %w", set.Name, unchecked))
	}
	if err := v.widen(request, &req, set, stored); err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("SidecarSet %s cannot be accepted: %w", set.Name, err))
	}
	if !isDryRun(&req) {
		v.admitted.remember(set)
	}
	return admission.Allowed("").WithWarnings(validation.Warnings(set)...)
}

// compare checks the SidecarSet against other objects, if the request changes a field that depends on other
// objects. An error means that a check could not run, and not that the SidecarSet is invalid.
func (v *Validator) compare(ctx context.Context, ratchet *validation.Ratchet, set *v1alpha1.SidecarSet) error {
	var unchecked error
	if ratchet.NeedsOthers() {
		unchecked = errors.Join(unchecked, v.conflicts(ctx, ratchet, set.Name))
	}
	if ratchet.NeedsWhitelist() && !v.Gates.PatchPodMetadataDefaultsAllowed {
		unchecked = errors.Join(unchecked, v.metadata(ctx, ratchet))
	}
	if ratchet.NeedsRevisions() {
		unchecked = errors.Join(unchecked, v.pinned(ctx, ratchet, set.Name))
	}
	return unchecked
}

// rejectedInDryRun returns the causes of the dry run. rejectedInDryRun omits causes that also apply to the
// stored object, because the rules of the API server may have changed since the object was stored.
func (v *Validator) rejectedInDryRun(ctx context.Context, req *admission.Request, ratchet *validation.Ratchet, known []metav1.StatusCause) ([]metav1.StatusCause, error) {
	dryRun := podDryRun{client: v.Client, nested: isDryRun(req)}
	found, err := dryRun.causes(ctx, req.Object.Raw, req.OldObject.Raw, known)
	if len(found) == 0 || len(req.OldObject.Raw) == 0 {
		return found, err
	}
	before, unchecked := dryRun.causes(ctx, req.OldObject.Raw, nil, nil)
	if unchecked != nil {
		// Without the causes of the stored object, the causes that the update introduces are not known.
		return nil, errors.Join(err, unchecked)
	}
	return ratchet.Introduced(found, before), err
}

func (v *Validator) conflicts(ctx context.Context, ratchet *validation.Ratchet, set string) error {
	v.admitted.awaitCached(ctx, v.Cached)
	var others v1alpha1.SidecarSetList
	if err := v.Sets.List(ctx, &others); err != nil {
		return fmt.Errorf("list the other SidecarSets: %w", err)
	}
	var pinned []appsv1.ControllerRevision
	for _, name := range ratchet.PinnedAmong(others.Items) {
		list := v.Revisions.Of
		if name == set {
			// The pinned revision may be newer than the cache.
			list = v.Revisions.LiveOf
		}
		revisions, err := list(ctx, name)
		if err != nil {
			return fmt.Errorf("list the revisions of SidecarSet %s: %w", name, err)
		}
		pinned = append(pinned, revisions...)
	}
	ratchet.Conflicts(others.Items, pinned)
	return nil
}

func (v *Validator) metadata(ctx context.Context, ratchet *validation.Ratchet) error {
	var configuration corev1.ConfigMap
	key := client.ObjectKey{Namespace: v.SystemNamespace, Name: v1alpha1.ConfigurationName}
	if err := v.Cached.Get(ctx, key, &configuration); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read the whitelist in ConfigMap %s: %w", key, err)
	}
	whitelist, err := validation.ParseWhitelist(configuration.Data[v1alpha1.MetadataWhitelistKey])
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", key, err)
	}
	ratchet.Metadata(whitelist)
	return nil
}

// pinned checks that the pinned revision exists. The pinned revision may be newer than the cache.
func (v *Validator) pinned(ctx context.Context, ratchet *validation.Ratchet, set string) error {
	revisions, err := v.Revisions.LiveOf(ctx, set)
	if err != nil {
		return fmt.Errorf("list its revisions: %w", err)
	}
	ratchet.Pinned(revisions)
	return nil
}

func isDryRun(req *admission.Request) bool { return req.DryRun != nil && *req.DryRun }
