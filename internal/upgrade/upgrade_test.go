package upgrade

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

var now = metav1.NewTime(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))

func target(metadata ...v1alpha1.SidecarSetPatchPodMetadata) Target {
	return Target{
		Version:  &podstate.Version{Set: "s", Hash: "new", HashWithoutImage: "blank", Sidecars: []podstate.Sidecar{{Name: "z", Image: "z:2"}, {Name: "same", Image: "same:1"}}},
		Revision: "s-rev", Metadata: metadata,
	}
}

func injected() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "d", UID: "uid", ResourceVersion: "41", Annotations: map[string]string{
			v1alpha1.HashAnnotation: `{"other":"an-older-form","s":{"hash":"old"}}`,
			"kept":                  "pod's own",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}, {Name: "same", Image: "same:1"}, {Name: "z", Image: "z:1"}}},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "z", ImageID: "id-1", RestartCount: 2}, {Name: "same", ImageID: "id-same"},
			},
		},
	}
}

func TestSpec7_5_TheWriteRecordsThatThePodWasNotAvailable(t *testing.T) {
	recorded := func(pod *corev1.Pod, target Target) *corev1.Pod {
		patch, err := Patch(pod, target, now)
		require.NoError(t, err)
		return apply(t, pod, patch)
	}
	const key = v1alpha1.UnavailableSinceAnnotation
	assert.NotContains(t, recorded(injected(), target()).Annotations, key, "it was available")

	down := injected()
	down.Annotations[key] = `{"o":"2024-01-01T00:00:00Z"}`
	down.Status.Conditions[0].Status = corev1.ConditionFalse
	down = recorded(down, target())
	assert.JSONEq(t, `{"o":"2024-01-01T00:00:00Z","s":"2024-01-02T12:00:00Z"}`, down.Annotations[key])

	// A pod that was unready before its upgrade takes no slot, even after a second upgrade.
	newer := target()
	newer.Version.Hash, newer.Version.Sidecars[0].Image = "newer", "z:3"
	assert.True(t, state(t, recorded(down, newer), newer).UnavailableBefore)

	// A pod that an upgrade made unready still takes a slot after the next upgrade.
	upgradedAgain := recorded(injected(), target())
	upgradedAgain.Status.Conditions[0].Status = corev1.ConditionFalse
	upgradedAgain = recorded(upgradedAgain, newer)
	assert.NotContains(t, upgradedAgain.Annotations, key)
	assert.True(t, state(t, upgradedAgain, newer).UnavailableByUpgrade())

	// A ready pod that is upgraded again was available before the upgrade.
	down.Status.Conditions[0].Status = corev1.ConditionTrue
	assert.JSONEq(t, `{"o":"2024-01-01T00:00:00Z"}`, recorded(down, newer).Annotations[key])
}

func TestContainerThatWasNotReportedYetHasNotRestarted(t *testing.T) {
	pod := injected()
	pod.Status.ContainerStatuses = nil
	patch, err := Patch(pod, target(), now)
	require.NoError(t, err)
	assert.Contains(t, string(patch), `\"lastContainerStatuses\":{\"z\":{\"imageID\":\"\",\"restartCount\":0,\"image\":\"z:1\"}}`)
}

// The kubelet has not started the second image, so the container does not restart.
func TestSpec7_APodThatGetsItsImageBackBeforeTheKubeletActedIsConsistent(t *testing.T) {
	pod := injected()
	pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
	write := func(image string) podstate.State {
		to := target()
		to.Version.Hash, to.Version.Sidecars[0].Image = "hash of "+image, image
		patch, err := Patch(pod, to, now)
		require.NoError(t, err)
		pod = apply(t, pod, patch)
		return *state(t, pod, to)
	}
	assert.False(t, write("docker.io/library/z:1").Consistent)
	assert.True(t, write("z:1").Consistent)
	assert.False(t, write("docker.io/library/z:1").Consistent)
	pod.Status.ContainerStatuses[0].RestartCount++
	assert.True(t, state(t, pod, target()).Consistent)
}

func TestSpec7_6_OneWriteContainsOnlyImagesAndRecords(t *testing.T) {
	patch, err := Patch(injected(), target(
		v1alpha1.SidecarSetPatchPodMetadata{Annotations: map[string]string{"kept": "set's", "missing": "added"}, PatchPolicy: v1alpha1.SidecarSetRetainPatchPolicy},
		v1alpha1.SidecarSetPatchPodMetadata{Annotations: map[string]string{"level": "3"}, PatchPolicy: v1alpha1.SidecarSetOverwritePatchPolicy},
	), now)
	require.NoError(t, err)
	var got struct {
		Metadata struct {
			UID, ResourceVersion string
			Annotations          map[string]string
		}
		Spec map[string]any
	}
	require.NoError(t, json.Unmarshal(patch, &got))
	assert.Equal(t, "uid", got.Metadata.UID)
	assert.Equal(t, "41", got.Metadata.ResourceVersion)
	assert.Equal(t, map[string]any{"containers": []any{map[string]any{"name": "z", "image": "z:2"}}}, got.Spec)
	assert.Equal(t, map[string]string{
		v1alpha1.HashAnnotation: `{"other":"an-older-form","s":{"updateTimestamp":"2024-01-02T12:00:00Z","hash":"new","sidecarSetName":"s",` +
			`"sidecarList":["same","z"],"controllerRevision":"s-rev"}}`,
		v1alpha1.InPlaceUpdateStateAnnotation: `{"s":{"revision":"new","updateTimestamp":"2024-01-02T12:00:00Z","lastContainerStatuses":{"z":{"imageID":"id-1","restartCount":2,"image":"z:1"}}}}`,
		"missing":                             "added",
		"level":                               "3",
	}, got.Metadata.Annotations)
}

func TestSpec7_6_AnUpgradeLeavesImmutableAnnotations(t *testing.T) {
	patch, err := Patch(injected(), target(v1alpha1.SidecarSetPatchPodMetadata{PatchPolicy: v1alpha1.SidecarSetOverwritePatchPolicy, Annotations: map[string]string{
		"container.apparmor.security.beta.kubernetes.io/side": "unconfined", "kubernetes.io/config.mirror": "x", "team": "mesh",
	}}), now)
	require.NoError(t, err)
	assert.NotContains(t, string(patch), "apparmor")
	assert.NotContains(t, string(patch), "config.mirror")
	assert.Contains(t, string(patch), `"team":"mesh"`)
}

func TestMetadataThatCannotBeMergedNamesThePod(t *testing.T) {
	pod := injected()
	pod.Annotations["level"] = "not JSON"
	_, err := Patch(pod, target(v1alpha1.SidecarSetPatchPodMetadata{
		Annotations: map[string]string{"level": `{"a":1}`}, PatchPolicy: v1alpha1.SidecarSetMergePatchJSONPolicy,
	}), now)
	require.ErrorContains(t, err, "upgrade pod d/p: ")
}

func TestSpec7_2_AnUpgradeRenewsTheHashOfAnEarlierRelease(t *testing.T) {
	const key = v1alpha1.HashWithoutImageAnnotation
	to := target()
	to.FormerHashWithoutImage = "former"
	for recorded, want := range map[string]string{"former": "blank", "blank": "blank", "another": "another"} {
		pod := injected()
		pod.Annotations[key] = `{"other":"g","s":{"hash":"` + recorded + `"}}`
		patch, err := Patch(pod, to, now)
		require.NoError(t, err)
		read, err := record.Read(apply(t, pod, patch).Annotations)
		require.NoError(t, err)
		assert.Equal(t, want, read.HashesWithoutImage["s"].Hash)
		assert.Equal(t, "g", read.HashesWithoutImage["other"].Hash)
	}
}

// The rollout of z:2 ended without the pod, whose kubelet did not respond. The kubelet never started z:2.
func TestSpec2_15_AnUndoOfAnImageThatTheKubeletNeverStartedIsConsistent(t *testing.T) {
	upgraded := target()
	upgraded.SetVersion = "70"
	patch, err := Patch(injected(), upgraded, now)
	require.NoError(t, err)
	pod := apply(t, injected(), patch)
	undo := target()
	undo.SetVersion, undo.Version.Hash, undo.Version.Sidecars[0].Image = "80", "undo", "z:1"
	undo.Good = []v1alpha1.GoodRevision{{Revision: "r", Hash: "new", ResourceVersion: "75"}}
	require.True(t, state(t, pod, undo).RolloutEnded)
	patch, err = Patch(pod, undo, now)
	require.NoError(t, err)
	assert.True(t, state(t, apply(t, pod, patch), undo).Consistent)
}
