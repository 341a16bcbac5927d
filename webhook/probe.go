package webhook

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
	"github.com/outrigger/outrigger/internal/validation"
)

// Names of config/rbac/validation.yaml, and of the pod that is never stored.
const (
	probeNamespace = "outrigger-validation"
	probeQuota     = "no-pods"
	probePod       = "probe"
)

// kubernetes asks the API server itself what it would refuse in a pod (SPEC §5):
// it knows the rules of its own version, and which of its features are on.
type kubernetes struct {
	client client.Client
}

// refuses returns what the API server has against pods with the containers and
// volumes of a raw SidecarSet, unless known holds it already. If they are the
// same as before, defaults apart, it is not asked again. An error means that there was no
// answer: other admission checks, lacking rights, an outage.
func (k kubernetes) refuses(ctx context.Context, raw, before []byte, known []metav1.StatusCause) ([]metav1.StatusCause, error) {
	probe, err := probeOf(raw)
	if err != nil || probe == nil {
		return nil, err
	}
	if len(before) > 0 {
		last, err := probeOf(before)
		if err != nil {
			return nil, err
		}
		if last != nil && reflect.DeepEqual(last.PodSpec, probe.PodSpec) {
			return nil, nil
		}
	}
	err = k.tryPod(ctx, probe.PodSpec)
	if apierrors.IsNotFound(err) {
		if err := k.ensureNamespace(ctx); err != nil {
			return nil, err
		}
		err = k.tryPod(ctx, probe.PodSpec)
	}
	causes, err := verdict(err)
	return probe.Causes(causes, known), err
}

func probeOf(raw []byte) (*validation.Probe, error) {
	var written struct {
		Spec map[string]any `json:"spec"`
	}
	if err := utiljson.Unmarshal(raw, &written); err != nil {
		return nil, fmt.Errorf("read the raw object: %w", err)
	}
	set := &v1alpha1.SidecarSet{}
	if utiljson.Unmarshal(raw, set) != nil {
		// The API server says best what it cannot read.
		return validation.NewProbe(written.Spec), nil
	}
	validation.Default(set)
	completed, err := completedSpec(written.Spec, set)
	if err != nil {
		return nil, err
	}
	spec, _ := completed.(map[string]any)
	return validation.NewProbe(spec), nil
}

func (k kubernetes) tryPod(ctx context.Context, spec map[string]any) error {
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"namespace": probeNamespace, "name": probePod},
		"spec":     spec,
	}}
	return k.client.Create(ctx, pod, client.DryRunAll, client.FieldValidation(metav1.FieldValidationIgnore))
}

// verdict reads the API server's answer. Pods are validated before quotas are
// looked at: one that fails only for ours is valid. One that is admitted is,
// too: then the quota is not in force yet.
func verdict(answer error) ([]metav1.StatusCause, error) {
	if answer == nil {
		return nil, nil
	}
	var api apierrors.APIStatus
	if !errors.As(answer, &api) {
		return nil, fmt.Errorf("ask the API server whether pods may hold these containers and volumes: %w; try again", answer)
	}
	status := api.Status()
	said := func(format string, args ...any) bool {
		return strings.HasPrefix(status.Message, fmt.Sprintf(format, args...))
	}
	switch {
	case said("pods %q is forbidden: exceeded quota: %s,", probePod, probeQuota):
		return nil, nil
	case said("Pod %q is invalid: ", probePod) && status.Details != nil && len(status.Details.Causes) > 0:
		return status.Details.Causes, nil
	case apierrors.IsBadRequest(answer) && !said("admission webhook "):
		return []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldValueInvalid, Field: "spec", Message: "the API server cannot read a pod with these containers and volumes: " + status.Message,
		}}, nil
	}
	return nil, noVerdict(answer, said("pods is forbidden: User "))
}

// noVerdict says what keeps the API server's own opinion away, and what to do.
func noVerdict(answer error, unauthorized bool) error {
	switch {
	case apierrors.IsNotFound(answer):
		return fmt.Errorf("no pod can be tried: %w; apply config/rbac", answer)
	case unauthorized:
		return fmt.Errorf("the webhook may not try a pod: %w; apply config/rbac", answer)
	case apierrors.IsForbidden(answer), apierrors.IsInvalid(answer), apierrors.IsBadRequest(answer):
		return fmt.Errorf("another admission check of this cluster refused the pod that was tried: %w; exempt namespace %s from it", answer, probeNamespace)
	}
	return fmt.Errorf("ask the API server whether pods may hold these containers and volumes: %w; try again", answer)
}

// ensureNamespace puts the namespace and its quota in place, which a webhook can
// that runs with an administrator's rights. Others rely on config/rbac.
func (k kubernetes) ensureNamespace(ctx context.Context) error {
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
		if err := k.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("outrigger-webhook"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s, where pods are tried: %w; apply config/rbac", object.GetKind(), object.GetName(), err)
		}
	}
}
