package podstate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestFailedStartsNameTheImageInTheSpecOfThePod(t *testing.T) {
	waiting := func(name, image, reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Image: image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	}
	// The kubelet and containerd name the image in their messages.
	unpulled := func(image string) corev1.ContainerStatus {
		status := waiting("cold", "cold:v1", "ImagePullBackOff")
		status.State.Waiting.Message = `Back-off pulling image "` + image + `": ErrImagePull: failed to pull and unpack image "` + image + `": not found`
		return status
	}
	crashed := unpulled("cold:v1")
	crashed.State.Waiting.Reason = "CrashLoopBackOff"
	version := &Version{Sidecars: []Sidecar{
		{Name: "cold"}, {Name: "hot", EmptyImage: "empty"}, {Name: "native", Native: true},
	}}
	pod := func(statuses, inits []corev1.ContainerStatus) *corev1.Pod {
		return &corev1.Pod{
			Spec: corev1.PodSpec{
				Containers:     []corev1.Container{{Name: "cold", Image: "cold:v2"}, {Name: "hot-1", Image: "hot:v1"}, {Name: "hot-2", Image: "hot:v2"}, {Name: "app", Image: "app:v1"}},
				InitContainers: []corev1.Container{{Name: "native", Image: "native:v2", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
			},
			Status: corev1.PodStatus{ContainerStatuses: statuses, InitContainerStatuses: inits},
		}
	}
	invalid := waiting("cold", "cold:v1", "InvalidImageName")
	invalid.State.Waiting.Message = `Failed to apply default image tag "cold:v 1": couldn't parse image name "cold:v 1": invalid reference format`
	delayed := waiting("cold", "cold:v1", "ImagePullBackOff")
	delayed.State.Waiting.Message = `Back-off pulling image "cold:v2": ErrImagePull: pull QPS exceeded`
	for name, c := range map[string]struct {
		statuses, inits []corev1.ContainerStatus
		want            *FailedStart
	}{
		"none":                                 {nil, nil, nil},
		"a pull that the kubelet delays":       {[]corev1.ContainerStatus{delayed}, nil, nil},
		"a restart of all containers":          {[]corev1.ContainerStatus{waiting("cold", "cold:v2", "RestartingAllContainers")}, nil, nil},
		"being created":                        {[]corev1.ContainerStatus{waiting("cold", "cold:v2", "ContainerCreating")}, nil, nil},
		"before its pull":                      {[]corev1.ContainerStatus{waiting("cold", "cold:v1", "ErrImagePull")}, nil, &FailedStart{Container: "cold", Reason: "ImagePullBackOff", Image: "cold:v2"}},
		"an image that was replaced":           {[]corev1.ContainerStatus{unpulled("cold:bad")}, nil, nil},
		"an image name that was replaced":      {[]corev1.ContainerStatus{invalid}, nil, nil},
		"an image by another name":             {[]corev1.ContainerStatus{unpulled("docker.io/library/cold:v2")}, nil, &FailedStart{Container: "cold", Reason: "ImagePullBackOff", Image: "cold:v2"}},
		"a crash whose message names an image": {[]corev1.ContainerStatus{crashed}, nil, &FailedStart{Container: "cold", Reason: "CrashLoopBackOff", Image: "cold:v2"}},
		"a twin":                               {[]corev1.ContainerStatus{waiting("hot-2", "empty", "CrashLoopBackOff")}, nil, &FailedStart{Container: "hot-2", Reason: "CrashLoopBackOff", Image: "hot:v2"}},
		"native":                               {nil, []corev1.ContainerStatus{waiting("native", "native:v1", "CrashLoopBackOff")}, &FailedStart{Container: "native", Reason: "CrashLoopBackOff", Image: "native:v2"}},
		"container of the app":                 {[]corev1.ContainerStatus{waiting("app", "app:v1", "CrashLoopBackOff")}, nil, nil},
	} {
		assert.Equal(t, c.want, version.FailedStart(pod(c.statuses, c.inits)), name)
		assert.Equal(t, name == "container of the app", version.Blocked(pod(c.statuses, c.inits)), name)
	}
}

// The kubelet has not observed the upgrade of container cold.
func TestSpec11_6_ACrashLoopOfTheFormerContentIsNoFailedStart(t *testing.T) {
	waiting := func(name, reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Image: name + ":v1", ImageID: "id-1", RestartCount: 7,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	}
	version := &Version{Set: "s", Sidecars: []Sidecar{{Name: "cold"}, {Name: "other"}}}
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{v1alpha1.InPlaceUpdateStateAnnotation: `{"s":{"lastContainerStatuses":{"cold":{"imageID":"id-1","restartCount":7}}}}`}
	pod.Spec.Containers = []corev1.Container{{Name: "cold", Image: "cold:v2"}, {Name: "other", Image: "other:v1"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{waiting("cold", crashLoopBackOff)}
	assert.Nil(t, version.FailedStart(pod))

	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, waiting("other", crashLoopBackOff))
	assert.Equal(t, &FailedStart{Container: "other", Reason: crashLoopBackOff, Image: "other:v1"}, version.FailedStart(pod), "the upgrade does not change this container")
	pod.Status.ContainerStatuses[0] = waiting("cold", ImagePullBackOff)
	assert.Equal(t, &FailedStart{Container: "cold", Reason: ImagePullBackOff, Image: "cold:v2"}, version.FailedStart(pod))
	pod.Status.ContainerStatuses[0] = waiting("cold", crashLoopBackOff)
	pod.Status.ContainerStatuses[0].RestartCount++
	assert.Equal(t, &FailedStart{Container: "cold", Reason: crashLoopBackOff, Image: "cold:v2"}, version.FailedStart(pod), "the new content crashes")
}

// The kubelet pulls the new image of container cold, and still reports the failure of the previous content.
func TestSpec11_6_AStartFailureBeforeTheUpgradeIsMarked(t *testing.T) {
	const reason = "CreateContainerConfigError"
	version := &Version{Set: "s", Sidecars: []Sidecar{{Name: "cold"}, {Name: "other"}}}
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{v1alpha1.InPlaceUpdateStateAnnotation: `{"s":{"lastContainerStatuses":{"cold":{"imageID":"","restartCount":0,"startFailure":"` + reason + `"}}}}`}
	pod.Spec.Containers = []corev1.Container{{Name: "cold", Image: "cold:v2"}, {Name: "other", Image: "other:v1"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "cold", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	assert.Equal(t, &FailedStart{Container: "cold", Reason: reason, Image: "cold:v2", Before: true}, version.FailedStart(pod))

	pod.Status.ContainerStatuses[0].State.Waiting.Reason = "RunContainerError"
	assert.Equal(t, &FailedStart{Container: "cold", Reason: "RunContainerError", Image: "cold:v2"}, version.FailedStart(pod), "the new content fails for another reason")

	pod.Status.ContainerStatuses[0].State.Waiting.Reason = reason
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "other", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}})
	assert.Equal(t, &FailedStart{Container: "other", Reason: reason, Image: "other:v1"}, version.FailedStart(pod), "the upgrade does not change this container")
}

// CRI-O and cri-dockerd do not name the image that cannot be pulled.
func TestSpec11_6_APullFailureWithoutAnImageMayBeTheFailureBeforeTheUpgrade(t *testing.T) {
	version, pod := &Version{Set: "s", Sidecars: []Sidecar{{Name: "cold"}}}, &corev1.Pod{}
	pod.Annotations = map[string]string{v1alpha1.InPlaceUpdateStateAnnotation: `{"s":{"lastContainerStatuses":{"cold":{"imageID":"id-1","restartCount":0,"startFailure":"ImagePullBackOff"}}}}`}
	pod.Spec.Containers = []corev1.Container{{Name: "cold", Image: "cold:v3"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "cold", ImageID: "id-1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "ErrImagePull", Message: "initializing source docker://cold:v2: reading manifest v2 in docker.io/library/cold: manifest unknown"}}}}
	failed := &FailedStart{Container: "cold", Reason: ImagePullBackOff, Image: "cold:v3", Before: true}
	assert.Equal(t, failed, version.FailedStart(pod))
	pod.Status.ContainerStatuses[0].State.Waiting.Message = `Back-off pulling image "cold:v3": ErrImagePull: manifest unknown`
	failed.Before = false
	assert.Equal(t, failed, version.FailedStart(pod))
}

// The kubelet reports no start failure for a native sidecar that ended with exit code 0. In a pod with
// restartPolicy Never, the kubelet does not restart a container that has ended.
func TestSpec7_2_AContainerThatEndedForAnUpgradeIsAFailedStart(t *testing.T) {
	version, pod := &Version{Set: "s", Hash: "h3", Sidecars: []Sidecar{{Name: "mesh", Native: true}}}, &corev1.Pod{}
	pod.Annotations = map[string]string{v1alpha1.InPlaceUpdateStateAnnotation: `{"s":{"revision":"h2","lastContainerStatuses":{"mesh":{"imageID":"id-1","restartCount":0,"image":"mesh:v1"}}}}`}
	pod.Spec.InitContainers = []corev1.Container{{Name: "mesh", Image: "mesh:bad", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "mesh", Image: "mesh:v1", ImageID: "id-1", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	pod.Generation, pod.Status.ObservedGeneration = 2, 2
	assert.Equal(t, &FailedStart{Container: "mesh", Reason: "Terminated", Image: "mesh:bad", Before: true}, version.FailedStart(pod), "the kubelet may be pulling the image")
	state, err := version.Of(pod)
	require.NoError(t, err)
	assert.False(t, state.Waits(), "another upgrade may repair the container")

	pod.Status.ObservedGeneration = 1
	assert.Nil(t, version.FailedStart(pod), "the container ended before the kubelet observed the upgrade")
	state, err = version.Of(pod)
	require.NoError(t, err)
	assert.True(t, state.Waits())
	delete(pod.Annotations, v1alpha1.InPlaceUpdateStateAnnotation)
	pod.Status.ObservedGeneration = 2
	assert.Nil(t, version.FailedStart(pod), "the container ended without an upgrade")
}

// The kubelet started the active twin with the empty image, because the upgrade was written while the kubelet
// created the pod.
func TestSpec7_7_APodWhoseActiveTwinIsEmptyHasNotMigrated(t *testing.T) {
	version, pod := &Version{Set: "s", Hash: "h2", Sidecars: []Sidecar{{Name: "hot", EmptyImage: "empty:1", Image: "hot:v2"}}}, &corev1.Pod{}
	pod.Annotations = map[string]string{
		v1alpha1.WorkingHotUpgradeContainerAnnotation: `{"hot":"hot-2"}`, v1alpha1.VersionAnnotationPrefix + "hot-1": "7", v1alpha1.VersionAnnotationPrefix + "hot-2": "8",
		v1alpha1.InPlaceUpdateStateAnnotation: `{"s":{"revision":"h2","lastContainerStatuses":{"hot-2":{"imageID":"","restartCount":0,"image":"empty:1"}}}}`,
	}
	pod.Spec.Containers = []corev1.Container{{Name: "hot-1", Image: "hot:v1"}, {Name: "hot-2", Image: "hot:v2"}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "hot-1", Image: "hot:v1", ImageID: "id-1", Ready: true}, {Name: "hot-2", Image: "docker.io/library/empty:1", ImageID: "id-0", Ready: true}}
	state, err := version.Of(pod)
	require.NoError(t, err)
	assert.True(t, state.Migrating)
	assert.False(t, state.Migrated || state.Consistent)
	pod.Status.ContainerStatuses[1].Image, pod.Status.ContainerStatuses[1].ImageID = "hot:v2", "id-2"
	state, err = version.Of(pod)
	require.NoError(t, err)
	assert.True(t, state.Migrated && state.Consistent)
}
