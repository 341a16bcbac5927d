package switchover

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// upgradedAsTheyWould asserts that the upgraded pods are equal to pods that OpenKruise upgrades.
func (s *scenario) upgradedAsTheyWould() {
	s.t.Helper()
	byWorkload := map[string][]corev1.Pod{}
	for _, pod := range s.pods() {
		byWorkload[pod.Labels["app"]] = append(byWorkload[pod.Labels["app"]], pod)
	}
	for _, f := range workloads() {
		set := &v1alpha1.SidecarSet{}
		require.NoError(s.t, s.client.Get(s.ctx, client.ObjectKey{Name: f.name}, set))
		if f.hash != "" {
			require.Equal(s.t, f.hash, set.Annotations[v1alpha1.HashAnnotation], "what OpenKruise recorded of these containers")
		}
		require.Len(s.t, byWorkload[f.name], f.pods)
		recorded, was := s.read(&f)
		for i := range byWorkload[f.name] {
			s.upgradedAsTheyWouldOne(&f, recorded, was, set, &byWorkload[f.name][i])
		}
	}
}

// theirEntry and theirState contain all fields that OpenKruise reads and writes.
type theirEntry struct {
	UpdateTimestamp    time.Time `json:"updateTimestamp"`
	Hash               string    `json:"hash"`
	SidecarSetName     string    `json:"sidecarSetName"`
	SidecarList        []string  `json:"sidecarList"`
	ControllerRevision string    `json:"controllerRevision,omitempty"`
}

type theirState struct {
	Revision              string    `json:"revision"`
	UpdateTimestamp       time.Time `json:"updateTimestamp"`
	LastContainerStatuses map[string]struct {
		ImageID string `json:"imageID"`
		// RestartCount and Image are fields of Outrigger. OpenKruise ignores unknown fields.
		RestartCount *int32 `json:"restartCount"`
		Image        string `json:"image"`
	} `json:"lastContainerStatuses"`
	// SidecarSetVersion is a field of Outrigger.
	SidecarSetVersion string `json:"sidecarSetVersion"`
}

func (s *scenario) upgradedAsTheyWouldOne(f *workload, recorded *v1alpha1.SidecarSet, was *recordedPod, set *v1alpha1.SidecarSet, pod *corev1.Pod) {
	s.t.Helper()
	hashes, blank := s.entries(pod.Annotations[v1alpha1.HashAnnotation]), s.entries(pod.Annotations[v1alpha1.HashWithoutImageAnnotation])
	require.Equal(s.t, set.Annotations[v1alpha1.HashAnnotation], hashes[f.name].Hash)
	require.Equal(s.t, set.Status.LatestRevision, hashes[f.name].ControllerRevision)
	require.Equal(s.t, recorded.Annotations[v1alpha1.HashWithoutImageAnnotation], blank[f.name].Hash, "only images differ")
	for _, entry := range []theirEntry{hashes[f.name], blank[f.name]} {
		require.Equal(s.t, f.name, entry.SidecarSetName)
		require.Equal(s.t, []string{set.Spec.Containers[0].Name}, entry.SidecarList)
	}
	var states map[string]theirState
	strictly(s.t, pod.Annotations[v1alpha1.InPlaceUpdateStateAnnotation], &states)
	require.Len(s.t, states, 1)
	require.Equal(s.t, hashes[f.name].Hash, states[f.name].Revision)
	upgraded := f.container
	if f.standby != "" {
		upgraded = f.standby
		require.JSONEq(s.t, fmt.Sprintf(`{"envoy":%q}`, f.standby), pod.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation])
		require.Equal(s.t, "0", pod.Annotations[v1alpha1.VersionAnnotationPrefix+f.container], "the other twin is emptied")
	} else {
		ran, _, _ := strings.Cut(states[f.name].LastContainerStatuses[upgraded].ImageID, "@")
		require.Equal(s.t, "sim://"+recorded.Spec.Containers[0].Image, ran)
	}
	for i := range was.Containers {
		want := was.Containers[i].Image
		switch was.Containers[i].Name {
		case upgraded:
			want = f.upgraded
		case f.container:
			want = "empty:1"
		}
		require.Equal(s.t, want, pod.Spec.Containers[i].Image, "%s of %s", was.Containers[i].Name, pod.Name)
	}
}

func (s *scenario) entries(value string) (entries map[string]theirEntry) {
	s.t.Helper()
	strictly(s.t, value, &entries)
	require.Len(s.t, entries, 1)
	return entries
}

func strictly(t *testing.T, text string, into any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(into), text)
	require.ErrorIs(t, decoder.Decode(&struct{}{}), io.EOF)
}
