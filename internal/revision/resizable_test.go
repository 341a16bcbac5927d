package revision_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
)

func TestSpec7_9_RevisionsThatDifferOnlyInImagesAndAmountsAreResizable(t *testing.T) {
	build := func(change func(set *v1alpha1.SidecarSet)) *v1alpha1.SidecarSet {
		set := fixture.SidecarSet("s", fixture.Sidecar("side"), fixture.Sidecar("other"))
		set.Spec.InitContainers = []v1alpha1.SidecarContainer{fixture.Sidecar("native"), fixture.Sidecar("ends")}
		set.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		for _, c := range []*v1alpha1.SidecarContainer{&set.Spec.Containers[0], &set.Spec.InitContainers[0], &set.Spec.InitContainers[1]} {
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
		}
		change(set)
		return fixture.Hashed(set)
	}
	amount := func(list corev1.ResourceList, name corev1.ResourceName, value string) {
		list[name] = resource.MustParse(value)
	}
	for name, test := range map[string]struct {
		change func(set *v1alpha1.SidecarSet)
		want   bool
	}{
		"amount": {func(set *v1alpha1.SidecarSet) {
			amount(set.Spec.Containers[0].Resources.Limits, corev1.ResourceMemory, "96Mi")
		}, true},
		"amount and image": {func(set *v1alpha1.SidecarSet) {
			amount(set.Spec.Containers[0].Resources.Limits, corev1.ResourceMemory, "96Mi")
			set.Spec.Containers[1].Image = "other:v2"
		}, true},
		"amount of a native sidecar": {func(set *v1alpha1.SidecarSet) {
			amount(set.Spec.InitContainers[0].Resources.Limits, corev1.ResourceMemory, "96Mi")
		}, true},
		"amount of an init container that ends": {func(set *v1alpha1.SidecarSet) {
			amount(set.Spec.InitContainers[1].Resources.Limits, corev1.ResourceMemory, "96Mi")
		}, false},
		"the request that the limit implies": {func(set *v1alpha1.SidecarSet) {
			set.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
		}, true},
		"new limit": {func(set *v1alpha1.SidecarSet) {
			amount(set.Spec.Containers[0].Resources.Limits, corev1.ResourceCPU, "1")
		}, false},
		"removed limit": {func(set *v1alpha1.SidecarSet) {
			delete(set.Spec.Containers[0].Resources.Limits, corev1.ResourceMemory)
		}, false},
		"other resource": {func(set *v1alpha1.SidecarSet) {
			amount(set.Spec.Containers[0].Resources.Limits, corev1.ResourceEphemeralStorage, "2Gi")
		}, false},
		"amount and env": {func(set *v1alpha1.SidecarSet) {
			amount(set.Spec.Containers[0].Resources.Limits, corev1.ResourceMemory, "96Mi")
			set.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			old, set := build(func(*v1alpha1.SidecarSet) {}), build(test.change)
			recorded, err := revision.New(old, "system", 1)
			require.NoError(t, err)
			current, err := revision.New(set, "system", 2)
			require.NoError(t, err)
			unreadable := recorded.DeepCopy()
			unreadable.Data.Raw, unreadable.Annotations[v1alpha1.HashWithoutImageAnnotation] = []byte("{}"), "unreadable"
			hashes, err := revision.ResizableHashes(set, []*appsv1.ControllerRevision{unreadable, recorded, current})
			require.NoError(t, err)
			if !test.want {
				assert.Empty(t, hashes)
				return
			}
			assert.ElementsMatch(t, []string{old.Annotations[v1alpha1.HashWithoutImageAnnotation], set.Annotations[v1alpha1.HashWithoutImageAnnotation]}, hashes)
		})
	}
}

func TestSpec7_9_NothingIsResizableWhileRevisionsDifferOnlyInImages(t *testing.T) {
	set := fixture.Hashed(fixture.SidecarSet("s", fixture.Sidecar("side")))
	recorded, err := revision.New(set, "system", 1)
	require.NoError(t, err)
	hashes, err := revision.ResizableHashes(set, []*appsv1.ControllerRevision{recorded})
	require.NoError(t, err)
	assert.Nil(t, hashes)
}
