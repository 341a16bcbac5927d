package crd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/api/v1beta1"
	"github.com/outrigger/outrigger/internal/jsonpatch"
)

// Name is the name of the CustomResourceDefinition of SidecarSets.
const Name = "sidecarsets.apps.kruise.io"

// Get reads the CustomResourceDefinition of SidecarSets.
func Get(ctx context.Context, reader client.Reader) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := reader.Get(ctx, client.ObjectKey{Name: Name}, definition); err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s (config/crd defines it): %w", Name, err)
	}
	return definition, nil
}

// SuspendConversion makes the API server serve SidecarSets without a conversion webhook, until the webhook
// role claims the conversion again. SuspendConversion reports whether the definition was changed.
func SuspendConversion(ctx context.Context, c client.Client) (bool, error) {
	definition, err := Get(ctx, c)
	if err != nil || !Converts(definition) {
		return false, err
	}
	suspend := jsonpatch.Operation{Op: "add", Path: "/spec/conversion", Value: apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}}
	return true, change(ctx, c, definition, append(missingFields(definition), suspend))
}

// KeepFields adds to each version the field that only the other version has, if the definition has no conversion
// webhook. Without this field, the API server would prune the value of the field on each read, and the next write
// would delete the stored value. KeepFields reports whether the definition was changed.
func KeepFields(ctx context.Context, c client.Client) (bool, error) {
	definition, err := Get(ctx, c)
	if err != nil || Converts(definition) {
		return false, err
	}
	missing := missingFields(definition)
	if len(missing) == 0 {
		return false, nil
	}
	return true, change(ctx, c, definition, missing)
}

// KeepsFields reports whether a write of a SidecarSet preserves all fields of the stored version. KeepsFields
// returns true if a webhook converts, or if each version of the definition has the fields of the other
// version.
func KeepsFields(definition *apiextensionsv1.CustomResourceDefinition) bool {
	return Converts(definition) || len(missingFields(definition)) == 0
}

// Converts reports whether a webhook converts between the versions of a definition.
func Converts(definition *apiextensionsv1.CustomResourceDefinition) bool {
	conversion := definition.Spec.Conversion
	return conversion != nil && conversion.Strategy == apiextensionsv1.WebhookConverter
}

// missingFields returns the operations that add to each version the field that only the
// other version has.
func missingFields(definition *apiextensionsv1.CustomResourceDefinition) []jsonpatch.Operation {
	others := map[string]string{v1alpha1.GroupVersion.Version: "customVersion", v1beta1.GroupVersion.Version: "namespace"}
	if len(definition.Spec.Versions) < len(others) {
		return nil
	}
	var missing []jsonpatch.Operation
	for i, version := range definition.Spec.Versions {
		field, differs := others[version.Name]
		if !differs || version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
			continue
		}
		spec, described := version.Schema.OpenAPIV3Schema.Properties["spec"]
		preserved := spec.XPreserveUnknownFields != nil && *spec.XPreserveUnknownFields
		if _, known := spec.Properties[field]; known || preserved || !described || spec.Properties == nil {
			continue
		}
		missing = append(missing, jsonpatch.Add("/spec/versions/"+strconv.Itoa(i)+"/schema/openAPIV3Schema/properties/spec/properties/"+field,
			apiextensionsv1.JSONSchemaProps{Type: "string"}))
	}
	return missing
}

// change applies the operations to the definition. The API server rejects the patch if the definition has
// changed since the read.
func change(ctx context.Context, c client.Client, definition *apiextensionsv1.CustomResourceDefinition, operations []jsonpatch.Operation) error {
	exactly := jsonpatch.Operation{Op: "replace", Path: "/metadata/resourceVersion", Value: definition.ResourceVersion}
	patch, err := json.Marshal(slices.Concat([]jsonpatch.Operation{exactly}, operations))
	if err != nil {
		return fmt.Errorf("encode the patch of CustomResourceDefinition %s: %w", definition.Name, err)
	}
	if err := c.Patch(ctx, definition, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("patch CustomResourceDefinition %s: %w", definition.Name, err)
	}
	return nil
}
