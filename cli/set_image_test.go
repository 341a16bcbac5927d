package cli

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

// imageSet returns a SidecarSet with an ordinary container, a hot container and an init container.
func imageSet(t *testing.T, change ...func(*v1alpha1.SidecarSet)) *v1alpha1.SidecarSet {
	t.Helper()
	return sidecarSet(t, "logs", append([]func(*v1alpha1.SidecarSet){func(s *v1alpha1.SidecarSet) {
		hot := fixture.Sidecar("proxy")
		hot.UpgradeStrategy = v1alpha1.SidecarContainerUpgradeStrategy{UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: "proxy:empty"}
		s.Spec.Containers = append(s.Spec.Containers, hot)
		s.Spec.InitContainers = []v1alpha1.SidecarContainer{fixture.Sidecar("mesh")}
	}}, change...)...)
}

func imagesNow(t *testing.T, s testCluster) (*v1alpha1.SidecarSet, map[string]string) {
	t.Helper()
	set := &v1alpha1.SidecarSet{}
	require.NoError(t, s.Get(t.Context(), client.ObjectKey{Name: "logs"}, set))
	return set, imagesOf(&set.Spec)
}

func TestSetImagePatchesOnlyTheImages(t *testing.T) {
	s := newTestCluster(t, imageSet(t))
	_, before := imagesNow(t, s)
	const next = "next: kubectl sidecarset status logs --watch\n"
	assert.Equal(t, "sidecarset/logs image updated\n"+next, s.shows("set", "image", "sidecarset/logs", "proxy=proxy:v2", "mesh=mesh:v2"))
	set, now := imagesNow(t, s)
	assert.Equal(t, map[string]string{"agent": before["agent"], "proxy": "proxy:v2", "mesh": "mesh:v2"}, now)
	assert.NotContains(t, set.Annotations, v1alpha1.ChangeCauseAnnotation)

	assert.Equal(t, "sidecarset/logs image unchanged\n", s.shows("set", "image", "logs", "mesh=mesh:v2", "--reason=again"))
	set, _ = imagesNow(t, s)
	assert.NotContains(t, set.Annotations, v1alpha1.ChangeCauseAnnotation)

	assert.Equal(t, "sidecarset/logs image updated\n"+next, s.shows("set", "image", "logs", "agent=agent:v2", "mesh=mesh:v2", "--reason", "lost lines"))
	set, now = imagesNow(t, s)
	assert.Equal(t, "agent:v2", now["agent"])
	assert.Equal(t, "lost lines", set.Annotations[v1alpha1.ChangeCauseAnnotation])
	assert.Contains(t, set.Annotations, v1alpha1.HashAnnotation, "other annotations stay")
}

func TestSetImageGivesAReasonToASidecarSetWithoutAnnotations(t *testing.T) {
	set := imageSet(t)
	set.Annotations = nil
	s := newTestCluster(t, set)
	s.shows("set", "image", "logs", "agent=agent:v2", "--reason=first")
	set, _ = imagesNow(t, s)
	assert.Equal(t, map[string]string{v1alpha1.ChangeCauseAnnotation: "first"}, set.Annotations)
}

func TestSetImageWithoutAReasonRemovesTheReasonOfTheContentBefore(t *testing.T) {
	s := newTestCluster(t, imageSet(t))
	s.shows("set", "image", "logs", "agent=agent:v2", "--reason=lost lines")
	s.shows("set", "image", "logs", "agent=agent:v2")
	set, _ := imagesNow(t, s)
	assert.Equal(t, "lost lines", set.Annotations[v1alpha1.ChangeCauseAnnotation], "the content is the same")
	s.shows("set", "image", "logs", "agent=agent:v3")
	set, now := imagesNow(t, s)
	assert.Equal(t, "agent:v3", now["agent"])
	assert.NotContains(t, set.Annotations, v1alpha1.ChangeCauseAnnotation)
	assert.Contains(t, set.Annotations, v1alpha1.HashAnnotation, "other annotations stay")
}

func TestADryRunOfSetImageWritesNothing(t *testing.T) {
	s := newTestCluster(t, imageSet(t))
	_, before := imagesNow(t, s)
	for _, kind := range []string{"client", "server"} {
		assert.Equal(t, "sidecarset/logs image updated ("+kind+" dry run)\nnext: the same command without --dry-run\n",
			s.shows("set", "image", "logs", "agent=agent:v2", "--dry-run="+kind))
	}
	assert.JSONEq(t, `{"name": "logs", "dryRun": true, "changed": [{"container": "agent", "from": "`+before["agent"]+`", "to": "agent:v2"}]}`,
		s.shows("set", "image", "logs", "agent=agent:v2", "--dry-run=client", "-o", "json"))
	_, now := imagesNow(t, s)
	assert.Equal(t, before, now)
}

func TestSetImageNamesPausesWithTheirRemedies(t *testing.T) {
	s := newTestCluster(t, imageSet(t, func(s *v1alpha1.SidecarSet) {
		s.Spec.UpdateStrategy.Paused = true
		s.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann"}}
	}))
	assert.Equal(t, "sidecarset/logs image updated\n"+
		`paused: spec.updateStrategy.paused is true (kubectl sidecarset resume logs)`+
		"\npaused: by ann (kubectl sidecarset resume logs)\n", s.shows("set", "image", "logs", "agent=agent:v2"))
}

func TestSetImageRejectsUnknownContainers(t *testing.T) {
	s := newTestCluster(t, imageSet(t))
	_, before := imagesNow(t, s)
	for want, args := range map[string][]string{
		`"nobody=x": SidecarSet logs has no container "nobody"; it has agent, mesh, proxy`:                                                         {"agent=agent:v2", "nobody=x"},
		`"agent=AGENT:v2": the repository AGENT of the image contains upper-case letters, so no node can pull it: use agent`:                       {"agent=AGENT:v2"},
		`"agent=HUB.io/Logs/x": the repository Logs/x of the image contains upper-case letters, so no node can pull it: use logs/x`:                {"agent=HUB.io/Logs/x"},
		`"agent=hub.io//x": the image has an empty name, so no node can pull it: use an image such as registry.example.com/agent:v2`:               {"agent=hub.io//x"},
		`"agent=:v2": the image has an empty name, so no node can pull it: use an image such as registry.example.com/agent:v2`:                     {"agent=:v2"},
		`"agent=agent:v3": container agent is given twice: give one image for each container`:                                                      {"agent=agent:v2", "agent=agent:v3"},
		`"agent=agent:": the tag "" of the image is invalid, so no node can pull it: a tag has letters, digits, _, . and -, such as v2`:            {"agent=agent:"},
		`"agent=agent:-x": the tag "-x" of the image is invalid, so no node can pull it: a tag has letters, digits, _, . and -, such as v2`:        {"agent=agent:-x"},
		`"agent=agent@sha256:abc": the digest "sha256:abc" of the image is invalid, so no node can pull it: use sha256: and 64 hexadecimal digits`: {"agent=agent@sha256:abc"},
		`"agent=https://hub.io/agent": the image begins with https://, so no node can pull it: use hub.io/agent`:                                   {"agent=https://hub.io/agent"},
		`"agent": use CONTAINER=IMAGE`:                      {"agent"},
		`"agent=": the image is empty: use CONTAINER=IMAGE`: {"agent="},
		`"=x": use CONTAINER=IMAGE`:                         {"=x"},
		`"agent=BAD IMAGE": the image contains whitespace, so no node can pull it: remove the whitespace; for several containers, give CONTAINER=IMAGE several times`: {"agent=BAD IMAGE"},
	} {
		require.EqualError(t, s.run(append([]string{"set", "image", "logs"}, args...)...).err, want)
	}
	require.EqualError(t, s.run("set", "image", "logs", "agent=x", "--dry-run=yes").err, `--dry-run "yes": use none, client or server`)
	_, now := imagesNow(t, s)
	assert.Equal(t, before, now)
}

func TestSetImageAcceptsEachImageThatNodesPull(t *testing.T) {
	for _, image := range []string{
		"agent", "agent:V2", "HUB.example.com:5000/logs/agent:V2", "localhost:5000/agent", "hub.io/agent@sha256:" + strings.Repeat("A", 64),
		"hub.io/agent:v2@sha256:" + strings.Repeat("a", 64),
	} {
		require.NoError(t, checkImage(image), image)
	}
}

// If containers are reordered between the read and the patch, the patch fails, so that no container receives
// the image of another container.
func TestSetImageFailsIfTheContainersChangedPlaces(t *testing.T) {
	swapped := false
	s := newInterceptedCluster(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if !swapped {
				swapped = true
				var set v1alpha1.SidecarSet
				require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(object), &set))
				set.Spec.Containers[0], set.Spec.Containers[1] = set.Spec.Containers[1], set.Spec.Containers[0]
				require.NoError(t, c.Update(ctx, &set))
			}
			require.ErrorContains(t, c.Patch(ctx, object, patch, options...), "testing value /spec/containers/0/name failed")
			return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "dropped by the API server", 0, false)
		},
	}, imageSet(t))
	_, before := imagesNow(t, s)
	require.EqualError(t, s.run("set", "image", "logs", "agent=agent:v2").err, "SidecarSet logs was changed in the meantime: check it, and try again")
	_, now := imagesNow(t, s)
	assert.Equal(t, before, now)
}
