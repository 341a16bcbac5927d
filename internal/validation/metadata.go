package validation

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func validatePatches(set *v1alpha1.SidecarSet, at *field.Path) field.ErrorList {
	patches, at := set.Spec.PatchPodMetadata, at.Child("patchPodMetadata")
	var errs field.ErrorList
	seen := sets.New[string]()
	for i := range patches {
		patch, path := &patches[i], at.Index(i)
		errs = append(errs, oneOf(patch.PatchPolicy, path.Child("patchPolicy"), v1alpha1.SidecarSetRetainPatchPolicy,
			v1alpha1.SidecarSetOverwritePatchPolicy, v1alpha1.SidecarSetMergePatchJSONPolicy)...)
		for _, key := range slices.Sorted(maps.Keys(patch.Annotations)) {
			keyPath := path.Child("annotations").Key(key)
			for _, problem := range validation.IsQualifiedName(strings.ToLower(key)) { // Kubernetes ignores the case.
				errs = append(errs, field.Invalid(keyPath, key, problem))
			}
			if seen.Has(key) {
				errs = append(errs, advised(field.Duplicate(keyPath, key), "write each key once, with one policy"))
			}
			seen.Insert(key)
			if patch.PatchPolicy == v1alpha1.SidecarSetMergePatchJSONPolicy && !json.Valid([]byte(patch.Annotations[key])) {
				errs = append(errs, field.Invalid(keyPath, patch.Annotations[key], "policy MergePatchJson needs a JSON value"))
			}
		}
	}
	return errs
}

// Whitelist decides which annotations of pods SidecarSets may write.
type Whitelist struct {
	rules []whitelistRule
}

type whitelistRule struct {
	sets labels.Selector
	keys []*regexp.Regexp
}

// ParseWhitelist reads the value of v1alpha1.MetadataWhitelistKey in the configuration. An empty value allows
// nothing. ParseWhitelist returns an error for invalid JSON, selectors and expressions.
func ParseWhitelist(value string) (*Whitelist, error) {
	var written struct {
		Rules []struct {
			Selector                  *metav1.LabelSelector `json:"selector"`
			AllowedAnnotationKeyExprs []string              `json:"allowedAnnotationKeyExprs"`
		} `json:"rules"`
	}
	parsed := &Whitelist{}
	if value == "" {
		return parsed, nil
	}
	if err := json.Unmarshal([]byte(value), &written); err != nil {
		return nil, fmt.Errorf("configuration key %s: %w", v1alpha1.MetadataWhitelistKey, err)
	}
	for i, rule := range written.Rules {
		compiled := whitelistRule{sets: labels.Everything()}
		var err error
		if rule.Selector != nil {
			if compiled.sets, err = metav1.LabelSelectorAsSelector(rule.Selector); err != nil {
				return nil, fmt.Errorf("configuration key %s: rule %d: selector: %w", v1alpha1.MetadataWhitelistKey, i, err)
			}
		}
		for _, expression := range rule.AllowedAnnotationKeyExprs {
			key, err := regexp.Compile(expression)
			if err != nil {
				return nil, fmt.Errorf("configuration key %s: rule %d: %w", v1alpha1.MetadataWhitelistKey, i, err)
			}
			compiled.keys = append(compiled.keys, key)
		}
		parsed.rules = append(parsed.rules, compiled)
	}
	return parsed, nil
}

func (w *Whitelist) allows(setLabels map[string]string, key string) bool {
	for _, rule := range w.rules {
		if rule.sets.Matches(labels.Set(setLabels)) &&
			slices.ContainsFunc(rule.keys, func(e *regexp.Regexp) bool { return e.MatchString(key) }) {
			return true
		}
	}
	return false
}

// ValidateMetadata returns errors about the keys that the whitelist does not allow (SPEC §5).
func ValidateMetadata(set *v1alpha1.SidecarSet, whitelist *Whitelist) field.ErrorList {
	at := field.NewPath("spec", "patchPodMetadata")
	var errs field.ErrorList
	for i := range set.Spec.PatchPodMetadata {
		for _, key := range slices.Sorted(maps.Keys(set.Spec.PatchPodMetadata[i].Annotations)) {
			if !whitelist.allows(set.Labels, key) {
				errs = append(errs, field.Forbidden(at.Index(i).Child("annotations").Key(key), fmt.Sprintf(
					"not on the whitelist; add it to key %s of ConfigMap %s in the system namespace",
					v1alpha1.MetadataWhitelistKey, v1alpha1.ConfigurationName)))
			}
		}
	}
	return errs
}
