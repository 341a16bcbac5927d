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
	"github.com/outrigger/outrigger/internal/validation"
	"github.com/outrigger/outrigger/webhook/fallback"
)

// validationTimeout bounds all checks of a SidecarSet together, well below the time that
// the API server waits for an answer.
const validationTimeout = 3 * time.Second

// Validator refuses SidecarSets that cannot work, and updates that make them
// worse.
type Validator struct {
	Decoder admission.Decoder
	// Sets reads the other SidecarSets, for conflicts.
	Sets fallback.Reader
	// Live reads revisions, and Cached the whitelist.
	Live, Cached client.Reader
	// Client tries pods in a dry run.
	Client          client.Client
	Gates           FeatureGates
	SystemNamespace string

	admitted admittedSet
}

// Handle answers with every error found, each with its field. What an update
// leaves as it is stays; what could not be checked of the rest refuses the set.
func (v *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	ctx, cancel := context.WithTimeout(ctx, validationTimeout)
	defer cancel()
	set := &v1alpha1.SidecarSet{}
	if err := v.Decoder.Decode(req, set); err != nil {
		return unreadable(&req, err)
	}
	if set.DeletionTimestamp != nil {
		// Finalizers have to come off, whatever the rules are by now.
		return admission.Allowed("")
	}
	stored, err := storedSet(v.Decoder, &req)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("SidecarSet %s cannot be checked: %w", set.Name, err))
	}
	ratchet := validation.NewRatchet(set, stored)
	unchecked := v.compare(ctx, ratchet, set)
	causes := ratchet.Refused()
	refused, err := v.refusedInDryRun(ctx, &req, ratchet, causes)
	causes, unchecked = append(causes, refused...), errors.Join(unchecked, err)
	if len(causes) > 0 {
		return invalid(set.Name, causes)
	}
	if unchecked != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("SidecarSet %s cannot be checked: %w", set.Name, unchecked))
	}
	if req.DryRun == nil || !*req.DryRun {
		v.admitted.remember(set)
	}
	return admission.Allowed("")
}

// compare holds the set against what is stored beside it, as far as the update
// could be refused for it. An error is what kept it from checking.
func (v *Validator) compare(ctx context.Context, ratchet *validation.Ratchet, set *v1alpha1.SidecarSet) error {
	var unchecked error
	if ratchet.NeedsOthers() {
		unchecked = errors.Join(unchecked, v.conflicts(ctx, ratchet))
	}
	if ratchet.NeedsWhitelist() && !v.Gates.PatchPodMetadataDefaultsAllowed {
		unchecked = errors.Join(unchecked, v.metadata(ctx, ratchet))
	}
	if ratchet.NeedsRevisions() {
		unchecked = errors.Join(unchecked, v.pinned(ctx, ratchet, set.Name))
	}
	return unchecked
}

// refusedInDryRun leaves out what it has against the stored containers and
// volumes already: its rules change, too.
func (v *Validator) refusedInDryRun(ctx context.Context, req *admission.Request, ratchet *validation.Ratchet, known []metav1.StatusCause) ([]metav1.StatusCause, error) {
	dryRun := podDryRun{v.Client}
	found, err := dryRun.refuses(ctx, req.Object.Raw, req.OldObject.Raw, known)
	if len(found) == 0 || len(req.OldObject.Raw) == 0 {
		return found, err
	}
	before, unchecked := dryRun.refuses(ctx, req.OldObject.Raw, nil, nil)
	return ratchet.Introduced(found, before), errors.Join(err, unchecked)
}

func (v *Validator) conflicts(ctx context.Context, ratchet *validation.Ratchet) error {
	v.admitted.awaitCached(ctx, v.Cached)
	var others v1alpha1.SidecarSetList
	if err := v.Sets.List(ctx, &others); err != nil {
		return fmt.Errorf("look for conflicts with other SidecarSets: %w", err)
	}
	ratchet.Conflicts(others.Items)
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

// pinned looks for the revision that injection is pinned to.
func (v *Validator) pinned(ctx context.Context, ratchet *validation.Ratchet, set string) error {
	var revisions appsv1.ControllerRevisionList
	err := v.Live.List(ctx, &revisions, client.InNamespace(v.SystemNamespace), client.MatchingLabels{v1alpha1.SidecarSetNameLabel: set})
	if err != nil {
		return fmt.Errorf("look for the pinned revision: %w", err)
	}
	ratchet.Pinned(revisions.Items)
	return nil
}
