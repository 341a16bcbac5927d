package cli

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
)

func TestAPlanThatAdmissionRejectsFails(t *testing.T) {
	set := sidecarSet(t, "logs")
	s := newTestCluster(t, set)
	for _, stored := range []bool{true, false} {
		wanted := set.DeepCopy()
		wanted.APIVersion, wanted.Kind = "apps.kruise.io/v1alpha1", "SidecarSet"
		wanted.Spec.Containers[0].Image = ""
		if !stored {
			wanted.Name, wanted.Spec.Selector = "new", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "new"}}
		}
		file, err := yaml.Marshal(wanted)
		require.NoError(t, err)
		got := s.runWith(string(file), "plan", "-f", "-")
		require.EqualError(t, got.err, "admission rejects this SidecarSet: spec.containers[0].image: Required value: name the image")
		assert.Contains(t, got.out, "Rejected: spec.containers[0].image: Required value: name the image\n", "the plan is shown")
		got = s.runWith(string(file), "plan", "-f", "-", "-o", "json")
		require.Error(t, got.err)
		assert.Len(t, read[view.Plan](t, got.out).Rejected, 1)
	}
	s.shows("plan", "logs", "--image", "agent=agent:v2")
}

func TestAPlanThatPinsInjectionToAMissingRevisionFails(t *testing.T) {
	set := sidecarSet(t, "logs")
	s := newTestCluster(t, set)
	wanted := set.DeepCopy()
	wanted.APIVersion, wanted.Kind = "apps.kruise.io/v1alpha1", "SidecarSet"
	wanted.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: new("logs-gone")}
	file, err := yaml.Marshal(wanted)
	require.NoError(t, err)
	got := s.runWith(string(file), "plan", "-f", "-")
	require.ErrorContains(t, got.err, `admission rejects this SidecarSet: spec.injectionStrategy.revision.revisionName: Not found: "logs-gone"`)
}

func TestAPlanWithoutAChangeSaysSo(t *testing.T) {
	s := newTestCluster(t, sidecarSet(t, "logs"))
	assert.Contains(t, s.run("plan", "logs").out, "\nNote: nothing changes, because the SidecarSet has this spec: plan another image with --image, or another spec with -f\n")
	assert.NotContains(t, s.run("plan", "logs", "--image", "agent=agent:v2").out, "nothing changes")
	require.EqualError(t, s.run("plan").err, "plan: name a SidecarSet with the new image, such as logs --image agent=agent:v2, or give its changed manifest with -f")
	require.EqualError(t, s.run("plan", "logs", "-f", "x").err, "plan: give either the NAME of a SidecarSet, with --image, or a file with -f")
	require.EqualError(t, s.run("plan", "-f", "/nope").err, "there is no file /nope: give the manifest of a SidecarSet with -f; -f - reads it from standard input")
}

func TestAManifestOfAnotherKindIsNamed(t *testing.T) {
	_, _, err := convertSet(map[string]any{"kind": "Deployment"})
	require.EqualError(t, err, `the document is not a SidecarSet, but "Deployment": use the manifest of a SidecarSet`)
}

// A file has neither a generation nor a status.
func TestAPlanOfAFileContinuesTheRolloutInProgress(t *testing.T) {
	set := sidecarSet(t, "logs", func(s *v1alpha1.SidecarSet) {
		s.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 1, Policy: "edge", Stage: &v1alpha1.RolloutStage{Step: 2, Steps: 3, UpTo: new(intstr.FromString("50%"))}}
	})
	plan := func(stored *v1alpha1.SidecarSet, change func(*v1alpha1.SidecarSetSpec)) (ofFile, ofName string) {
		file := &v1alpha1.SidecarSet{Spec: *stored.Spec.DeepCopy()}
		file.APIVersion, file.Kind, file.Name = "apps.kruise.io/v1alpha1", "SidecarSet", stored.Name
		change(&file.Spec)
		text, err := yaml.Marshal(file)
		require.NoError(t, err)
		s := newTestCluster(t, stored, injectedPod(t, stored, "a", "before"), injectedPod(t, stored, "b", "before"))
		got := s.runWith(string(text), "plan", "-f", "-")
		require.NoError(t, got.err)
		noEstimate := regexp.MustCompile("(?m)^No estimate: .*\n") // The line names a directory of the test.
		return noEstimate.ReplaceAllString(got.out, ""), noEstimate.ReplaceAllString(s.shows("plan", stored.Name), "")
	}
	unchanged := func(*v1alpha1.SidecarSetSpec) {}
	ofFile, ofName := plan(set, unchanged)
	assert.Contains(t, ofFile, "\nRolloutPolicy edge:\n  step 2 of 3: ")
	assert.Equal(t, ofName, ofFile)

	set.Status.Rollout.Quarantine = &v1alpha1.RolloutQuarantine{Hash: set.Annotations[v1alpha1.HashAnnotation], Revision: "logs-1", Reason: "3 pods failed"}
	const quarantined = "2 pods: the content is quarantined (kubectl sidecarset retry logs)\n"
	ofFile, ofName = plan(set, unchanged)
	assert.Contains(t, ofFile, quarantined)
	assert.Equal(t, ofName, ofFile)
	ofFile, _ = plan(set, func(spec *v1alpha1.SidecarSetSpec) { spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(2)) })
	assert.Contains(t, ofFile, quarantined, "the quarantine applies to the same content")
	ofFile, _ = plan(set, func(spec *v1alpha1.SidecarSetSpec) { spec.Containers[0].Image = "agent:v9" })
	assert.NotContains(t, ofFile, "quarantined", "other content is not quarantined")
}
