package podstate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
)

// A user edits a SidecarSet while the webhook is not called, so the annotations are not updated.
func TestSpec2_AVersionHasTheHashesOfItsContent(t *testing.T) {
	stored := fixture.SidecarSet("s", fixture.Sidecar("side"))
	require.NoError(t, revision.Complete(stored, nil))
	edited := stored.DeepCopy()
	edited.Spec.Containers[0].Image = "side:v2"
	want := edited.DeepCopy()
	require.NoError(t, revision.WriteHashes(want))

	version, err := NewVersion(edited)
	require.NoError(t, err)
	assert.Equal(t, want.Annotations[v1alpha1.HashAnnotation], version.Hash)
	assert.NotEqual(t, stored.Annotations[v1alpha1.HashAnnotation], version.Hash)
	assert.Equal(t, stored.Annotations[v1alpha1.HashWithoutImageAnnotation], version.HashWithoutImage, "only the image differs")

	edited.Annotations = nil
	unhashed, err := NewVersion(edited)
	require.NoError(t, err)
	assert.Equal(t, version, unhashed)
}

// BenchmarkNewVersion measures the cost of a version that is not cached.
func BenchmarkNewVersion(b *testing.B) {
	sidecar := fixture.Sidecar("side", func(c *v1alpha1.SidecarContainer) {
		c.Ports = []corev1.ContainerPort{{ContainerPort: 15090}, {ContainerPort: 15021}}
		c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		for _, name := range []string{"A", "B", "C", "D", "E", "F", "G", "H"} {
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: "a value of ordinary length"})
		}
	})
	set := fixture.SidecarSet("s", sidecar, fixture.Sidecar("second"))
	require.NoError(b, revision.Complete(set, nil))
	edited := set.DeepCopy()
	edited.Spec.Containers[0].Image = "side:v2"
	for name, set := range map[string]*v1alpha1.SidecarSet{"admitted": set, "outdated": edited} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := NewVersion(set); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
