package view

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/internal/match"
)

// noPods contains the commands with which a user finds out why a SidecarSet matches no pod.
type noPods struct {
	// missingNamespace is spec.namespace if this namespace does not exist.
	missingNamespace string
	// find contains the commands that list the pods and the namespaces that the SidecarSet selects.
	find []string
	edit string
}

func newNoPods(in *Input) noPods {
	spec := &in.Set.Spec
	where := noPods{edit: "kubectl edit sidecarset " + in.Set.Name}
	if spec.Namespace != "" {
		// If the namespace cannot be read, the namespace is not reported as missing.
		if _, err := in.NamespaceLabels(spec.Namespace); apierrors.IsNotFound(err) {
			where.missingNamespace = spec.Namespace
			return where
		}
	}
	if match.MatchesNothing(spec.Selector) {
		return where
	}
	scope := "-A"
	if spec.Namespace != "" {
		scope = "-n " + spec.Namespace
	}
	where.find = []string{"kubectl get pods " + scope + " -l '" + metav1.FormatLabelSelector(spec.Selector) + "'"}
	if spec.NamespaceSelector != nil && !match.MatchesNothing(spec.NamespaceSelector) {
		where.find = append(where.find, "kubectl get namespaces -l '"+metav1.FormatLabelSelector(spec.NamespaceSelector)+"'")
	}
	return where
}

// next returns the commands that show why no pod matches.
func (w *noPods) next() []string {
	if w.missingNamespace != "" {
		return []string{w.noNamespace() + ": " + w.edit}
	}
	return append(w.find, w.edit)
}

// reason returns the reason that the command why shows.
func (w *noPods) reason() string {
	switch {
	case w.missingNamespace != "":
		return w.noNamespace() + " (" + w.edit + ")"
	case len(w.find) == 0:
		return "the selector of the SidecarSet is empty and selects no pod (" + w.edit + ")"
	}
	return "no pod is injected with this SidecarSet (" + w.find[0] + ")"
}

func (w *noPods) noNamespace() string {
	return "namespace " + w.missingNamespace + " of the SidecarSet does not exist"
}
