package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/validation"
)

// defaulter completes SidecarSets and writes their hashes.
type defaulter struct {
	decoder admission.Decoder
}

// Handle answers with what the defaults change.
func (d *defaulter) Handle(_ context.Context, req admission.Request) admission.Response {
	set := &v1alpha1.SidecarSet{}
	if err := d.decoder.Decode(req, set); err != nil {
		return unreadable(&req, err)
	}
	validation.Default(set)
	if err := validation.WriteHashes(set); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	operations, err := difference(req.Object.Raw, set)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("SidecarSet %s: %w", set.Name, err))
	}
	return patched(operations).WithWarnings(unknownFields(req.Object.Raw)...)
}

// patience bounds all checks of a SidecarSet together, well below the time that
// the API server waits for an answer.
const patience = 6 * time.Second

// validator refuses SidecarSets that cannot work. Sets and revisions are read
// from the API server itself: two sets applied in a row must see each other.
type validator struct {
	decoder         admission.Decoder
	live            client.Reader
	cached          client.Reader
	kubernetes      kubernetes
	gates           FeatureGates
	systemNamespace string
}

// Handle answers with every error found, each with its field. What could not be
// checked refuses the set as well.
func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	set := &v1alpha1.SidecarSet{}
	if err := v.decoder.Decode(req, set); err != nil {
		return unreadable(&req, err)
	}
	if set.DeletionTimestamp != nil {
		// Finalizers have to come off, whatever the rules are by now.
		return admission.Allowed("")
	}
	errs, unchecked := v.own(ctx, &req, set)
	causes := causesOf(errs)
	refused, err := v.kubernetes.refuses(ctx, req.Object.Raw, req.OldObject.Raw, causes)
	causes, unchecked = append(causes, refused...), errors.Join(unchecked, err)
	if len(causes) > 0 {
		return invalid(set.Name, causes)
	}
	if unchecked != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("SidecarSet %s cannot be checked: %w", set.Name, unchecked))
	}
	return admission.Allowed("")
}

// own returns what Outrigger itself refuses, and what kept it from checking.
func (v *validator) own(ctx context.Context, req *admission.Request, set *v1alpha1.SidecarSet) (field.ErrorList, error) {
	var unchecked error
	errs := validation.Validate(set)
	if req.Operation == admissionv1.Update {
		old := &v1alpha1.SidecarSet{}
		if err := v.decoder.DecodeRaw(req.OldObject, old); err != nil {
			unchecked = fmt.Errorf("read the stored object: %w", err)
		} else {
			errs = append(errs, validation.ValidateUpdate(set, old)...)
		}
	}
	for _, check := range []func(context.Context, *v1alpha1.SidecarSet) (field.ErrorList, error){v.conflicts, v.metadata, v.pinned} {
		found, err := check(ctx, set)
		errs, unchecked = append(errs, found...), errors.Join(unchecked, err)
	}
	return errs, unchecked
}

func (v *validator) conflicts(ctx context.Context, set *v1alpha1.SidecarSet) (field.ErrorList, error) {
	var others v1alpha1.SidecarSetList
	if err := v.live.List(ctx, &others); err != nil {
		return nil, fmt.Errorf("look for conflicts with other SidecarSets: %w", err)
	}
	return validation.ValidateConflicts(set, others.Items), nil
}

func (v *validator) metadata(ctx context.Context, set *v1alpha1.SidecarSet) (field.ErrorList, error) {
	if len(set.Spec.PatchPodMetadata) == 0 || v.gates.PatchPodMetadataDefaultsAllowed {
		return nil, nil
	}
	var configuration corev1.ConfigMap
	key := client.ObjectKey{Namespace: v.systemNamespace, Name: v1alpha1.ConfigurationName}
	if err := v.cached.Get(ctx, key, &configuration); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the whitelist in ConfigMap %s: %w", key, err)
	}
	whitelist, err := validation.ParseWhitelist(configuration.Data[v1alpha1.MetadataWhitelistKey])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", key, err)
	}
	return validation.ValidateMetadata(set, whitelist), nil
}

// pinned looks for the revision that injection is pinned to.
func (v *validator) pinned(ctx context.Context, set *v1alpha1.SidecarSet) (field.ErrorList, error) {
	if set.Spec.InjectionStrategy.Revision == nil {
		return nil, nil
	}
	var revisions appsv1.ControllerRevisionList
	err := v.live.List(ctx, &revisions, client.InNamespace(v.systemNamespace), client.MatchingLabels{v1alpha1.SidecarSetNameLabel: set.Name})
	if err != nil {
		return nil, fmt.Errorf("look for the pinned revision: %w", err)
	}
	return validation.ValidatePinned(set, revisions.Items), nil
}
