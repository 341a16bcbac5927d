package sidecarsets

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/outrigger/outrigger/internal/validation"
)

// Names of config/rbac/validation.yaml, and of the pod that is never stored.
const (
	dryRunNamespace = "outrigger-validation"
	dryRunQuota     = "no-pods"
	dryRunPod       = "probe"
)

// podDryRun asks the API server itself what it would refuse in a pod (SPEC §5):
// it knows the rules of its own version, and which of its features are on.
type podDryRun struct {
	client client.Client
}

// refuses returns what the API server has against pods with the containers and
// volumes of a raw SidecarSet, unless known holds it already. If they are the
// same as before, defaults apart, it is not asked again. An error means that there was no
// answer: other admission checks, lacking rights, an outage.
func (d podDryRun) refuses(ctx context.Context, raw, before []byte, known []metav1.StatusCause) ([]metav1.StatusCause, error) {
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
	if apierrors.IsNotFound(err) {
		if err := d.ensureNamespace(ctx); err != nil {
			return nil, err
		}
		err = d.tryPod(ctx, pod.Spec)
	}
	causes, err := dryRunCauses(err)
	return pod.Causes(causes, known), err
}

func dryRunPodOf(raw []byte) (*validation.DryRunPod, error) {
	var written struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := utiljson.Unmarshal(raw, &written); err != nil {
		return nil, fmt.Errorf("read the raw object: %w", err)
	}
	spec, err := decodeJSON(written.Spec)
	if err != nil {
		return nil, err
	}
	// What this program cannot read is tried as it is: the API server says best what
	// is wrong with it.
	if set := (&v1alpha1.SidecarSet{}); utiljson.Unmarshal(raw, set) == nil {
		validation.Default(set)
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

// dryRunCauses reads the answer to a dry run. Pods are validated before quotas are
// looked at: one that fails only for ours is valid. One that is admitted is,
// too: then the quota is not in force yet.
func dryRunCauses(answer error) ([]metav1.StatusCause, error) {
	if answer == nil {
		return nil, nil
	}
	var api apierrors.APIStatus
	if !errors.As(answer, &api) {
		return nil, fmt.Errorf("ask the API server whether pods may hold these containers and volumes: %w; try again", answer)
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
			Type: metav1.CauseTypeFieldValueInvalid, Field: "spec", Message: "the API server cannot read a pod with these containers and volumes: " + status.Message,
		}}, nil
	}
	return nil, dryRunError(answer, messageStarts("pods is forbidden: User "))
}

// dryRunError says what keeps the API server's own opinion away, and what to do.
func dryRunError(answer error, unauthorized bool) error {
	switch {
	case apierrors.IsNotFound(answer):
		return fmt.Errorf("no pod can be tried: %w; apply config/rbac", answer)
	case unauthorized:
		return fmt.Errorf("the webhook may not try a pod: %w; apply config/rbac", answer)
	case apierrors.IsForbidden(answer), apierrors.IsInvalid(answer), apierrors.IsBadRequest(answer):
		return fmt.Errorf("another admission check of this cluster refused the pod that was tried: %w; exempt namespace %s from it", answer, dryRunNamespace)
	}
	return fmt.Errorf("ask the API server whether pods may hold these containers and volumes: %w; try again", answer)
}

// ensureNamespace puts the namespace and its quota in place, which a webhook can
// that runs with an administrator's rights. Others rely on config/rbac.
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
			return fmt.Errorf("apply %s %s, where pods are tried: %w; apply config/rbac", object.GetKind(), object.GetName(), err)
		}
	}
}
