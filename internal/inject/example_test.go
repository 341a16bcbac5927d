package inject_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/inject"
)

// A SidecarSet is prepared once, and injected into any number of pods.
func ExamplePod() {
	set := fixture.SidecarSet("logs", fixture.Sidecar("shipper", func(s *v1alpha1.SidecarContainer) {
		s.VolumeMounts = []corev1.VolumeMount{{Name: "spool", MountPath: "/spool"}}
	}))
	set.Spec.Volumes = []corev1.Volume{{Name: "spool"}, {Name: "mounted-by-nobody"}}
	defaults.Write(set)
	prepared, err := inject.Prepare(set, "logs-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := fixture.Pod(fixture.Container("app"))
	pod.Annotations = map[string]string{"team": "web"}
	injection, err := inject.Pod(pod, []*inject.Set{prepared}, metav1.NewTime(time.Unix(0, 0)))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, operation := range injection.Patch() {
		fmt.Println(operation.Op, operation.Path)
	}
	// Output:
	// add /metadata/annotations/kruise.io~1sidecarset-hash
	// add /metadata/annotations/kruise.io~1sidecarset-hash-without-image
	// add /metadata/annotations/kruise.io~1sidecarset-injected-list
	// add /spec/containers/0
	// add /spec/volumes
}

// A partition that is a number is divided by the number of matched pods. If the partition keeps all matched
// pods old, every new pod gets the pinned revision.
func ExampleUsesPinned() {
	set := fixture.SidecarSet("logs", fixture.Sidecar("shipper"))
	set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{Policy: v1alpha1.PartialSidecarSetInjectRevisionPolicy}
	set.Status.MatchedPods = 10
	defaults.Write(set)
	for _, held := range []int32{0, 10} {
		set.Spec.UpdateStrategy.Partition.IntVal = held
		pinned, err := inject.UsesPinned(set, fixture.Pod(), "request")
		fmt.Println(held, pinned, err)
	}
	// Output:
	// 0 false <nil>
	// 10 true <nil>
}
