package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

// four returns a SidecarSet at the fourth revision, with the custom version "2". One custom version of the
// third revision is equal to the name of the first revision.
func four(t *testing.T) (*v1alpha1.SidecarSet, []*appsv1.ControllerRevision) {
	t.Helper()
	set := sidecarSet(t, "logs", func(s *v1alpha1.SidecarSet) {
		s.Labels = map[string]string{v1alpha1.CustomVersionLabel: "2", "team": "a"}
		s.Spec.Containers[0].Image = "agent:v4"
	})
	first := recordedAs(t, set, 1, "agent:v1", "good")
	return set, []*appsv1.ControllerRevision{
		first, recordedAs(t, set, 2, "agent:v2", "both", "twice"), recordedAs(t, set, 3, "agent:v3", first.Name, "both", "twice", "last"), recordedAs(t, set, 4, "agent:v4", "2"),
	}
}

func fourRevisionsCluster(t *testing.T) (testCluster, *v1alpha1.SidecarSet, []*appsv1.ControllerRevision) {
	t.Helper()
	set, sorted := four(t)
	return newTestCluster(t, set, sorted[0], sorted[1], sorted[2], sorted[3]), set, sorted
}

func TestARevisionIsFoundByNumberThenNameThenCustomVersion(t *testing.T) {
	set, sorted := four(t)
	v := versions{set, sorted, "system"}
	for reference, want := range map[string]int64{"2": 2, "4": 4, sorted[0].Name: 1, "good": 1, "twice": 2, "last": 3} {
		found, err := v.find(reference)
		require.NoError(t, err, reference)
		assert.Equal(t, want, found.Revision, reference)
	}
	_, err := v.find("both")
	require.EqualError(t, err, `"both" is a former custom version of several revisions of SidecarSet logs: `+labelOf(sorted[2])+`, `+labelOf(sorted[1])+`; use the name of one`)
	sorted[1].Revision = 1
	_, err = v.find("1")
	require.ErrorContains(t, err, `"1" is the number of several revisions of SidecarSet logs: `)
	_, err = v.find("5")
	require.ErrorContains(t, err, `SidecarSet logs has no revision "5"; it has logs-`)
	_, err = versions{set: set, namespace: "system"}.find("5")
	require.ErrorContains(t, err, `namespace system has no revision of SidecarSet logs (name `)
}

func TestUndoRestoresTheCustomVersionOfTheContent(t *testing.T) {
	for reference, want := range map[string]struct{ image, version string }{
		"2":    {"agent:v2", "twice"},
		"3":    {"agent:v3", "last"},
		"good": {"agent:v1", "good"},
		"":     {"agent:v3", "last"},
	} {
		s, set, _ := fourRevisionsCluster(t)
		args := []string{"undo", "logs"}
		if reference != "" {
			args = append(args, "--to-revision="+reference)
		}
		assert.Contains(t, s.shows(append(args, "--dry-run=client", "-o", "yaml")...), "sidecarset-custom-version: "+want.version+"\n    team: a\n")
		s.shows(args...)
		require.NoError(t, s.Get(t.Context(), client.ObjectKeyFromObject(set), set))
		assert.Equal(t, want.image, set.Spec.Containers[0].Image, reference)
		assert.Equal(t, map[string]string{v1alpha1.CustomVersionLabel: want.version, "team": "a"}, set.Labels, reference)
	}
}

// During a rollout, the operator writes the status every second.
func TestUndoFailsOnlyIfMoreThanStatusHasChanged(t *testing.T) {
	const changed = "SidecarSet logs was changed in the meantime: check it, and try again"
	for name, c := range map[string]struct {
		change func(*v1alpha1.SidecarSet)
		want   string
	}{
		"status": {func(s *v1alpha1.SidecarSet) { s.Status.UpdatedPods++ }, ""},
		"status, and no webhook has written hashes": {func(s *v1alpha1.SidecarSet) {
			s.Status.UpdatedPods++
			s.Annotations = nil
		}, ""},
		"generation": {func(s *v1alpha1.SidecarSet) { s.Generation++ }, changed},
		"labels":     {func(s *v1alpha1.SidecarSet) { s.Labels["team"] = "b" }, changed},
		"annotations": {func(s *v1alpha1.SidecarSet) {
			s.Annotations = map[string]string{v1alpha1.ChangeCauseAnnotation: "another"}
		}, changed},
	} {
		set, sorted := four(t)
		if strings.Contains(name, "no webhook") {
			set.Annotations = nil
		}
		writes := 0
		s := newInterceptedCluster(t, interceptor.Funcs{
			Patch: func(ctx context.Context, cluster client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				if writes++; writes <= 2 {
					var now v1alpha1.SidecarSet
					require.NoError(t, cluster.Get(ctx, client.ObjectKeyFromObject(object), &now))
					c.change(&now)
					require.NoError(t, cluster.Update(ctx, &now))
				}
				return cluster.Patch(ctx, object, patch, options...)
			},
		}, set, sorted[0], sorted[1], sorted[2], sorted[3])
		got := s.run("undo", "logs")
		require.NoError(t, s.Get(t.Context(), client.ObjectKeyFromObject(set), set))
		if c.want != "" {
			require.EqualError(t, got.err, c.want, name)
			assert.Equal(t, "agent:v4", set.Spec.Containers[0].Image, name)
			continue
		}
		require.NoError(t, got.err, name)
		assert.Equal(t, "agent:v3", set.Spec.Containers[0].Image, name)
		assert.Equal(t, 3, writes, "two conflicts with status")
		assert.EqualValues(t, 2, set.Status.UpdatedPods, "the status that was written meanwhile stays")
	}
}

func TestUndoToContentWithoutACustomVersionLeavesNone(t *testing.T) {
	set, sorted := four(t)
	delete(sorted[0].Labels, v1alpha1.CustomVersionLabel)
	set.Spec.CustomVersion = "of v1beta1"
	s := newTestCluster(t, set, sorted[0])
	assert.NotContains(t, s.shows("undo", "logs", "--dry-run=client", "-o", "yaml"), "ersion: of v1beta1")
	s.shows("undo", "logs")
	require.NoError(t, s.Get(t.Context(), client.ObjectKeyFromObject(set), set))
	assert.Equal(t, map[string]string{"team": "a"}, set.Labels)
	assert.Empty(t, set.Spec.CustomVersion)
}

func TestUndoRestoresTheChangeCauseOfTheContent(t *testing.T) {
	for cause, want := range map[string]map[string]string{"": nil, "first": {v1alpha1.ChangeCauseAnnotation: "first"}} {
		set, sorted := four(t)
		set.Annotations = map[string]string{v1alpha1.ChangeCauseAnnotation: "a change that is undone"}
		sorted[0].Annotations[v1alpha1.ChangeCauseAnnotation] = cause
		s := newTestCluster(t, set, sorted[0])
		assert.Equal(t, want, read[*v1alpha1.SidecarSet](t, s.shows("undo", "logs", "-o", "json")).Annotations)
		require.NoError(t, s.Get(t.Context(), client.ObjectKeyFromObject(set), set))
		assert.Equal(t, want, set.Annotations)
	}
}

func TestUndoWritesNoContentThatCannotBeRead(t *testing.T) {
	for _, damaged := range []string{`{}`, `{"spec":null}`, `{"spec":{"containers":"x"}}`} {
		set, sorted := four(t)
		sorted[0].Data.Raw = []byte(damaged)
		s := newTestCluster(t, set, sorted[0], sorted[3])
		for _, args := range [][]string{{"undo", "logs"}, {"undo", "logs", "--to-revision=1", "--dry-run=client"}, {"diff", "logs", "1"}} {
			got := s.run(args...)
			require.ErrorContains(t, got.err, "revision "+sorted[0].Name+": read the content", "%s: %v", damaged, args)
		}
		require.NoError(t, s.Get(t.Context(), client.ObjectKeyFromObject(set), set))
		assert.Equal(t, "agent:v4", set.Spec.Containers[0].Image)
	}
}

func TestUndoNamesImagesAndTheNextStep(t *testing.T) {
	s, _, sorted := fourRevisionsCluster(t)
	assert.Equal(t, "sidecarset/logs goes back to revision "+labelOf(sorted[2])+": agent=agent:v4 → agent:v3 (client dry run)\nnext: the same command without --dry-run\n",
		s.shows("undo", "logs", "--dry-run=client"))
	assert.Equal(t, "sidecarset/logs goes back to revision "+labelOf(sorted[2])+": agent=agent:v4 → agent:v3\nnext: kubectl sidecarset status logs --watch\n",
		s.shows("undo", "logs"))
}

func TestUndoReportsThatTheSidecarSetIsPaused(t *testing.T) {
	set, sorted := four(t)
	set.Spec.UpdateStrategy.Paused = true
	set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann"}}
	s := newTestCluster(t, set, sorted[0], sorted[3])
	assert.Contains(t, s.shows("undo", "logs"), "agent:v1\n"+
		`paused: spec.updateStrategy.paused is true (kubectl sidecarset resume logs)`+
		"\npaused: by ann (kubectl sidecarset resume logs)\n")
}

func TestResumeEndsAPauseBySpec(t *testing.T) {
	paused := func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Paused = true }
	s := newTestCluster(t, sidecarSet(t, "logs", paused), sidecarSet(t, "both", paused, func(s *v1alpha1.SidecarSet) {
		s.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann"}}
	}))
	assert.Equal(t, "sidecarset/logs resumed (spec.updateStrategy.paused is false)\nnext: kubectl sidecarset status logs --watch\n", s.shows("resume", "logs"))
	require.Error(t, s.run("resume", "both").err, "the run is paused, too, and Temporal does not respond")
	for _, name := range []string{"logs", "both"} {
		set := &v1alpha1.SidecarSet{}
		require.NoError(t, s.Get(t.Context(), client.ObjectKey{Name: name}, set))
		assert.False(t, set.Spec.UpdateStrategy.Paused, name)
	}
}

func TestChangedImagesNameAddedAndRemovedContainers(t *testing.T) {
	set, sorted := four(t)
	set.Spec.Containers = append(set.Spec.Containers, fixture.Sidecar("extra"))
	assert.Equal(t, "agent=agent:v4 → agent:v1, extra="+set.Spec.Containers[1].Image+" → none", changedImages(&set.Spec, sorted[0]))
	set.Spec.Containers = nil
	assert.Equal(t, "agent=none → agent:v1", changedImages(&set.Spec, sorted[0]))
}
