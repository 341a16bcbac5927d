package switchover

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/internal/revision"
)

// workload is a SidecarSet with injected pods that were recorded from OpenKruise in test/conformance.
type workload struct {
	name, recorded string
	pods           int
	// upgraded is the next image of the SidecarSet. hash is the hash that OpenKruise recorded for the same
	// containers with this image. If OpenKruise recorded no such hash, hash is empty.
	upgraded, hash string
	// container is the name of the container that runs the sidecar before the upgrade. For a hot sidecar,
	// standby is the name of the standby twin before the upgrade. Otherwise, standby is empty.
	container, standby string
}

const injectionCases = "../conformance/expected/"

func workloads() []workload {
	return []workload{
		{name: "cold", recorded: "inject-basic", pods: 500, container: "side", upgraded: "side:v2", hash: "wv7454c29c58cxzb2zfx48xfwx2692ccbvw25bw5dwf8b454zx9d25c5b8cxfzx9"},
		{name: "volumes", recorded: "share-volumes", pods: 150, container: "side", upgraded: "busybox:1.37"},
		{name: "variables", recorded: "transfer-env", pods: 150, container: "side", upgraded: "busybox:1.37"},
		{name: "hot", recorded: "hot-upgrade-inject", pods: 200, container: "envoy-1", standby: "envoy-2", upgraded: "envoy:2"},
	}
}

// recordedPod is a pod in the format of the recorded results.
type recordedPod struct {
	Annotations      map[string]json.RawMessage    `json:"annotations"`
	Labels           map[string]string             `json:"labels"`
	Containers       []corev1.Container            `json:"containers"`
	InitContainers   []corev1.Container            `json:"initContainers"`
	Volumes          []corev1.Volume               `json:"volumes"`
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets"`
}

// read returns the SidecarSet and a pod of a workload. The names, the labels and the fields that a record
// omits come from this cluster.
func (s *scenario) read(f *workload) (*v1alpha1.SidecarSet, *recordedPod) {
	s.t.Helper()
	raw, err := os.ReadFile(injectionCases + f.recorded + ".json")
	require.NoError(s.t, err)
	text := strings.NewReplacer(`"s1"`, fmt.Sprintf("%q", f.name), `"app": "web"`, fmt.Sprintf(`"app": %q`, f.name)).Replace(string(raw))
	var steps []struct {
		SidecarSet struct {
			Annotations map[string]string
			Spec        v1alpha1.SidecarSetSpec
		}
		Pod *recordedPod
	}
	require.NoError(s.t, json.Unmarshal([]byte(text), &steps))
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: f.name, Annotations: steps[0].SidecarSet.Annotations}, Spec: steps[0].SidecarSet.Spec}
	all := intstr.FromString("100%")
	set.Spec.UpdateStrategy.MaxUnavailable = &all
	return set, steps[1].Pod
}

// store creates the objects of a workload in the state in which OpenKruise leaves the objects.
func (s *scenario) store(f *workload) {
	s.t.Helper()
	set, recorded := s.read(f)
	require.NoError(s.t, s.client.Create(s.ctx, set))
	built, err := revision.New(set, cluster.SystemNamespace, 1)
	require.NoError(s.t, err)
	require.NoError(s.t, s.client.Create(s.ctx, built))
	pod := s.build(recorded, built.Name)
	creations, ctx := errgroup.WithContext(s.ctx)
	creations.SetLimit(16)
	for i := range f.pods {
		creations.Go(func() error {
			one := pod.DeepCopy()
			one.Name = fmt.Sprintf("%s-%d", f.name, i)
			return s.client.Create(ctx, one)
		})
	}
	require.NoError(s.t, creations.Wait())
}

func (s *scenario) build(recorded *recordedPod, revisionName string) *corev1.Pod {
	s.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: recorded.Labels, Annotations: map[string]string{}}}
	pod.Spec.Containers, pod.Spec.InitContainers = recorded.Containers, recorded.InitContainers
	pod.Spec.Volumes, pod.Spec.ImagePullSecrets = recorded.Volumes, recorded.ImagePullSecrets
	for key, value := range recorded.Annotations {
		var text string
		if json.Unmarshal(value, &text) == nil {
			pod.Annotations[key] = text
			continue
		}
		var entries map[string]any
		require.NoError(s.t, json.Unmarshal(value, &entries))
		for _, entry := range entries {
			if of, is := entry.(map[string]any); is {
				of["updateTimestamp"] = "2026-01-02T03:04:05Z"
				if of["controllerRevision"] != nil {
					of["controllerRevision"] = revisionName
				}
			}
		}
		encoded, err := json.Marshal(entries)
		require.NoError(s.t, err)
		pod.Annotations[key] = string(encoded)
	}
	return pod
}
