package sidecarsets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/config/rbac"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/validation"
)

// These are the names in config/rbac/validation.yaml, and the name of the pod in dry runs.
const (
	dryRunNamespace = "outrigger-validation"
	dryRunQuota     = "no-pods"
	dryRunPod       = "probe"
)

// podDryRun creates a pod in a dry run (SPEC §5). A dry run is necessary because the validation rules
// depend on the version and the feature gates of the API server.
type podDryRun struct {
	client client.Client
	// nested is set if the request to the webhook is itself a dry run, which must create no namespace.
	nested bool
}

// causes returns the causes if the API server rejects a pod with the containers and volumes of a raw
// SidecarSet. causes omits the causes in known. If the containers and volumes differ from before only in
// defaults, causes skips the dry run. An error means that the dry run failed for another reason, such as
// another admission check, missing permissions or an outage.
func (d podDryRun) causes(ctx context.Context, raw, before []byte, known []metav1.StatusCause) ([]metav1.StatusCause, error) {
	pod, err := dryRunPodOf(raw)
	if err != nil || pod == nil {
		return nil, err
	}
	if len(before) > 0 {
		last, err := dryRunPodOf(before)
		if err != nil {
			return nil, err
		}
		if last != nil && reflect.DeepEqual(last.Spec, pod.Spec) {
			return nil, nil
		}
	}
	err = d.tryPod(ctx, pod.Spec)
	if apierrors.IsNotFound(err) && d.nested {
		return nil, nil // A later request that is not a dry run creates the namespace and validates the pod.
	}
	if apierrors.IsNotFound(err) {
		if err := d.ensureNamespace(ctx); err != nil {
			return nil, err
		}
		err = d.tryPod(ctx, pod.Spec)
	}
	causes, err := dryRunCauses(err)
	return pod.Causes(causes, known), err
}

// dryRunPodOf returns the pod for the dry run of a raw SidecarSet. For a SidecarSet without containers and
// volumes, dryRunPodOf returns nil.
func dryRunPodOf(raw []byte) (*validation.DryRunPod, error) {
	written, spec, err := readWritten(raw)
	if err != nil {
		return nil, err
	}
	// A spec that cannot be decoded is sent unchanged, because the API server returns the best
	// error message.
	if set := (&v1alpha1.SidecarSet{}); utiljson.Unmarshal(raw, set) == nil {
		defaults.Write(set)
		if spec, err = completedSpec(written.Spec, spec, set); err != nil {
			return nil, err
		}
	}
	object, _ := spec.(map[string]any)
	return validation.NewDryRunPod(object), nil
}

func (d podDryRun) tryPod(ctx context.Context, spec map[string]any) error {
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"namespace": dryRunNamespace, "name": dryRunPod},
		"spec":     spec,
	}}
	return d.client.Create(ctx, pod, client.DryRunAll, client.FieldValidation(metav1.FieldValidationIgnore))
}

// dryRunCauses interprets the answer to a dry run. The API server validates a pod before the check of
// quotas. Therefore, a pod that only exceeds the quota of this namespace is valid. An admitted pod is also
// valid. In this case, the quota is not in force yet.
func dryRunCauses(answer error) ([]metav1.StatusCause, error) {
	if answer == nil {
		return nil, nil
	}
	var api apierrors.APIStatus
	if !errors.As(answer, &api) {
		return nil, dryRunError(answer, false)
	}
	status := api.Status()
	messageStarts := func(format string, args ...any) bool {
		return strings.HasPrefix(status.Message, fmt.Sprintf(format, args...))
	}
	switch {
	case messageStarts("pods %q is forbidden: exceeded quota: %s,", dryRunPod, dryRunQuota):
		return nil, nil
	case messageStarts("Pod %q is invalid: ", dryRunPod) && status.Details != nil && len(status.Details.Causes) > 0:
		return status.Details.Causes, nil
	case apierrors.IsBadRequest(answer) && !messageStarts("admission webhook "):
		return []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldValueInvalid, Field: "spec", Message: "the API server cannot decode a pod with these containers and volumes: " + status.Message,
		}}, nil
	}
	return nil, dryRunError(answer, messageStarts("pods is forbidden: User "))
}

// dryRunError returns an error with the cause of a failed dry run, and with a remedy.
func dryRunError(answer error, forbidden bool) error {
	switch {
	case apierrors.IsNotFound(answer):
		return fmt.Errorf("create a pod in a dry run: %w; apply config/rbac", answer)
	case forbidden:
		return fmt.Errorf("the webhook may not create a pod in a dry run: %w; apply config/rbac", answer)
	case apierrors.IsForbidden(answer), apierrors.IsInvalid(answer), apierrors.IsBadRequest(answer):
		return fmt.Errorf("another admission check of this cluster rejected the pod of the dry run: %w; exempt namespace %s from it", answer, dryRunNamespace)
	}
	return fmt.Errorf("create a pod with these containers and volumes in a dry run: %w; try again", answer)
}

// ensureNamespace creates the namespace of dry runs and the quota of this namespace. A webhook without
// cluster-admin permissions relies on config/rbac instead.
func (d podDryRun) ensureNamespace(ctx context.Context) error {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rbac.Validation), len(rbac.Validation))
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the shipped config/rbac/validation.yaml: %w", err)
		}
		if err := d.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("outrigger-webhook"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s for dry runs: %w; apply config/rbac", object.GetKind(), object.GetName(), err)
		}
	}
}
