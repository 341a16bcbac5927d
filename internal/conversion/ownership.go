package conversion

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/api/v1beta1"
)

// StoredOwnership returns metadata.managedFields with the entries of v1beta1 converted to v1alpha1, or nil
// if no entry has version v1beta1. At each write, the API server converts an object to the versions of all
// entries. If all entries have the stored version, a write of status needs no conversion.
func StoredOwnership(set *v1alpha1.SidecarSet) ([]metav1.ManagedFieldsEntry, error) {
	beta := v1beta1.GroupVersion.String()
	if !slices.ContainsFunc(set.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.APIVersion == beta }) {
		return nil, nil
	}
	var stored []metav1.ManagedFieldsEntry
	for _, entry := range set.ManagedFields {
		if entry.APIVersion == beta {
			owned, err := decodeFields(entry)
			if err != nil {
				return nil, err
			}
			storeFields(owned, set)
			if entry.FieldsV1, err = encodeFields(owned); err != nil {
				return nil, err
			}
			entry.APIVersion = v1alpha1.GroupVersion.String()
		}
		var err error
		if stored, err = withEntry(stored, entry); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// storeFields converts the names of owned fields from v1beta1 to v1alpha1. customVersionToLabel and
// selectorToNamespace convert the values of the fields. in is the SidecarSet in v1alpha1.
func storeFields(owned map[string]any, in *v1alpha1.SidecarSet) {
	leaf := map[string]any{}
	remove(owned, "f:metadata", "f:annotations", "f:"+v1beta1.V1alpha1ScopeAnnotation)
	if remove(owned, "f:spec", "f:customVersion") {
		set(owned, leaf, "f:metadata", "f:labels", "f:"+v1alpha1.CustomVersionLabel)
	}
	if !remove(owned, "f:spec", "f:"+selectorField) {
		return
	}
	if in.Spec.Namespace != "" {
		set(owned, leaf, "f:spec", "f:"+namespaceField)
	}
	if in.Spec.NamespaceSelector != nil {
		set(owned, leaf, "f:spec", "f:"+selectorField)
	}
}

// withEntry merges entry into an existing entry with the same manager, operation, subresource and API
// version. If there is no such entry, withEntry appends entry. withEntry may change entries.
func withEntry(entries []metav1.ManagedFieldsEntry, entry metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	for i := range entries {
		same := &entries[i]
		if same.Manager != entry.Manager || same.Operation != entry.Operation ||
			same.Subresource != entry.Subresource || same.APIVersion != entry.APIVersion {
			continue
		}
		owned, err := decodeFields(*same)
		if err != nil {
			return nil, err
		}
		more, err := decodeFields(entry)
		if err != nil {
			return nil, err
		}
		unite(owned, more)
		if same.Time.Before(entry.Time) {
			same.Time = entry.Time
		}
		same.FieldsV1, err = encodeFields(owned)
		return entries, err
	}
	return append(entries, entry), nil
}

func unite(owned, more map[string]any) {
	for name, below := range more {
		here, both := owned[name].(map[string]any)
		there, _ := below.(map[string]any)
		if both {
			unite(here, there)
		} else {
			owned[name] = below
		}
	}
}

func decodeFields(entry metav1.ManagedFieldsEntry) (map[string]any, error) {
	owned := map[string]any{}
	raw := entry.FieldsV1.GetRawBytes()
	if len(raw) == 0 {
		return owned, nil
	}
	if err := json.Unmarshal(raw, &owned); err != nil {
		return nil, fmt.Errorf("read the fields that %s manages: %w", entry.Manager, err)
	}
	return owned, nil
}

func encodeFields(owned map[string]any) (*metav1.FieldsV1, error) {
	encoded, err := json.Marshal(owned)
	if err != nil {
		return nil, fmt.Errorf("encode managed fields: %w", err)
	}
	return metav1.NewFieldsV1(string(encoded)), nil
}
