package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/record"
)

// injectedPod returns a pod with the version hash of a SidecarSet.
func injectedPod(t *testing.T, set *v1alpha1.SidecarSet, name, hash string) *corev1.Pod {
	t.Helper()
	return plainPod("default", name, func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, fixture.Container("agent"))
		p.Annotations = map[string]string{v1alpha1.InjectedListAnnotation: set.Name}
		for key, value := range map[string]string{v1alpha1.HashAnnotation: hash, v1alpha1.HashWithoutImageAnnotation: set.Annotations[v1alpha1.HashWithoutImageAnnotation]} {
			entry, err := record.Format(record.Entries{set.Name: {Hash: value, SidecarSetName: set.Name}})
			require.NoError(t, err)
			p.Annotations[key] = entry
		}
	})
}

// damagedCluster returns a cluster with a valid SidecarSet, with one old pod and one pod that lacks the
// sidecars, and with SidecarSets that were stored without admission.
func damagedCluster(t *testing.T) (s testCluster, stored []string) {
	t.Helper()
	fine := sidecarSet(t, "fine")
	unreadable := sidecarSet(t, "a-unreadable", func(s *v1alpha1.SidecarSet) {
		s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Perhaps"}}}
	})
	namespaces := sidecarSet(t, "a-namespaces", func(s *v1alpha1.SidecarSet) {
		s.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "!"}}
	})
	hashless := sidecarSet(t, "a-hashless")
	hashless.Annotations = nil
	empty := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "a-empty"}}
	ofAll := injectedPod(t, hashless, "of-hashless", "before")
	broken := injectedPod(t, fine, "broken", "before")
	broken.Annotations[v1alpha1.HashAnnotation] = "{"
	return newTestCluster(t, fine, recordedAs(t, fine, 1, fine.Spec.Containers[0].Image), unreadable, namespaces, hashless, empty,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		injectedPod(t, fine, "old", "before"), plainPod("default", "plain"), broken, ofAll,
	), []string{"a-empty", "a-hashless", "a-namespaces", "a-unreadable", "fine"}
}

func TestADamagedSidecarSetDoesNotPreventTheListOfOthers(t *testing.T) {
	s, _ := damagedCluster(t)
	got := s.run("list", "--outdated")
	assert.Regexp(t, `default +old +fine +Old`, got.out)
	require.ErrorContains(t, got.err, "SidecarSet a-unreadable: spec.selector: ")
	require.ErrorContains(t, got.err, "SidecarSet a-namespaces: spec.namespaceSelector: ")
	got = s.run("list", "--missing")
	assert.Regexp(t, `default +plain +fine +Missing`, got.out)
	require.ErrorContains(t, got.err, "SidecarSet a-unreadable: spec.selector: ")
	got = s.run("list", "--missing", "-o", "json")
	require.Error(t, got.err)
	assert.Contains(t, got.out, `"sidecarSet": "fine"`)
}

func TestADamagedSidecarSetDoesNotPreventTheExplanationOfOthers(t *testing.T) {
	s, stored := damagedCluster(t)
	for _, pod := range []string{"old", "plain", "broken", "of-hashless"} {
		out := s.shows("why", "pod/"+pod)
		for _, set := range stored {
			assert.Contains(t, out, "sidecarset/"+set+": ", pod)
		}
	}
}

// Commands about a valid SidecarSet succeed although other SidecarSets are invalid. The error about an invalid
// SidecarSet names the field.
func TestCommandsWorkBesideDamagedSidecarSets(t *testing.T) {
	s, stored := damagedCluster(t)
	for _, set := range []string{"a-namespaces", "a-unreadable", "fine"} {
		for _, args := range [][]string{
			{"status", set}, {"status", set, "-o", "json"}, {"why", "sidecarset/" + set}, {"why", "sidecarset/" + set, "-o", "json"}, {"history", set}, {"plan", set}, {"plan", set, "-o", "json"},
		} {
			got := s.run(args...)
			if set == "a-unreadable" || set == "a-namespaces" {
				require.ErrorContains(t, got.err, "SidecarSet "+set+": spec.", "%v", args)
			} else {
				assert.NoError(t, got.err, "%v", args)
				assert.NotEmpty(t, got.out)
			}
		}
	}
	out := s.shows("list")
	for _, set := range stored {
		assert.Contains(t, out, set)
	}
}
