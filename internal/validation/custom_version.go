package validation

import "github.com/outrigger/outrigger/api/v1alpha1"

// labelCustomVersion moves the custom version to where v1alpha1 has it. A label
// that is there wins, as it does in conversion.
func labelCustomVersion(set *v1alpha1.SidecarSet) {
	version := set.Spec.CustomVersion
	set.Spec.CustomVersion = ""
	if _, labelled := set.Labels[v1alpha1.CustomVersionLabel]; labelled || version == "" {
		return
	}
	if set.Labels == nil {
		set.Labels = map[string]string{}
	}
	set.Labels[v1alpha1.CustomVersionLabel] = version
}
