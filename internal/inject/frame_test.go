package inject

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/fixture"
)

func TestAFramedContainerIsEncodedLikeAnyOther(t *testing.T) {
	own := fixture.Container("side")
	variable, other := env("A", "<&>"), env("B", "\"\u2028")
	device := corev1.VolumeDevice{Name: "d", DevicePath: "/dev/d"}
	for name, lists := range map[string]struct {
		env, moreEnv         []corev1.EnvVar
		mounts, moreMounts   []corev1.VolumeMount
		devices, moreDevices []corev1.VolumeDevice
	}{
		"nothing":     {},
		"only own":    {env: []corev1.EnvVar{variable, other}, mounts: []corev1.VolumeMount{mount("m", "/m")}, devices: []corev1.VolumeDevice{device}},
		"only added":  {moreEnv: []corev1.EnvVar{variable}, moreMounts: []corev1.VolumeMount{mount("m", "/m")}, moreDevices: []corev1.VolumeDevice{device, device}},
		"both":        {env: []corev1.EnvVar{variable}, moreEnv: []corev1.EnvVar{other}, mounts: []corev1.VolumeMount{mount("m", "/m")}, moreMounts: []corev1.VolumeMount{mount("n", "/n")}},
		"own devices": {devices: []corev1.VolumeDevice{device}, moreDevices: []corev1.VolumeDevice{device}},
	} {
		t.Run(name, func(t *testing.T) {
			own.Env, own.VolumeMounts, own.VolumeDevices = lists.env, lists.mounts, lists.devices
			framed, err := newFrame(own)
			require.NoError(t, err)
			grown := addition{Container: own, frame: framed}
			grown.Env = append(grown.Env, lists.moreEnv...)
			grown.VolumeMounts = append(grown.VolumeMounts, lists.moreMounts...)
			grown.VolumeDevices = append(grown.VolumeDevices, lists.moreDevices...)
			want, err := json.Marshal(grown.Container)
			require.NoError(t, err)
			encoded, err := grown.append(nil)
			require.NoError(t, err)
			assert.JSONEq(t, string(want), string(encoded))
		})
	}
}
