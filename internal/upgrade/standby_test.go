package upgrade

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

type twin struct {
	image   string
	ready   bool
	version string
}

func podWithTwins(one, two twin) *corev1.Pod {
	p := &corev1.Pod{}
	p.Annotations = map[string]string{}
	for name, t := range map[string]twin{"envoy-1": one, "envoy-2": two} {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: t.image})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Ready: t.ready})
		p.Annotations[v1alpha1.VersionAnnotationPrefix+name] = t.version
	}
	return p
}

func TestSpec7_7_StandbyTwin(t *testing.T) {
	sidecar := podstate.Sidecar{Name: "envoy", Image: "envoy:3", EmptyImage: "empty:1"}
	for name, c := range map[string]struct {
		one, two twin
		want     string
	}{
		"the empty one":                            {twin{"envoy:1", true, "1"}, twin{"empty:1", true, "0"}, "envoy-2"},
		"the empty one, the other way round":       {twin{"empty:1", true, "0"}, twin{"envoy:1", true, "7"}, "envoy-1"},
		"the empty one even if the other is down":  {twin{"envoy:1", false, "1"}, twin{"empty:1", true, "0"}, "envoy-2"},
		"none is empty: the one not ready":         {twin{"envoy:1", true, "1"}, twin{"envoy:bad", false, "9"}, "envoy-2"},
		"none is empty, both ready: the older":     {twin{"envoy:1", true, "10"}, twin{"envoy:2", true, "9"}, "envoy-2"},
		"none is empty, both down: the older":      {twin{"envoy:1", false, "3"}, twin{"envoy:2", false, "20"}, "envoy-1"},
		"both empty: the one not ready":            {twin{"empty:1", false, "0"}, twin{"empty:1", true, "0"}, "envoy-1"},
		"versions that are no numbers are oldest":  {twin{"envoy:1", true, "x"}, twin{"envoy:2", true, "2"}, "envoy-1"},
		"nothing tells them apart: the second one": {twin{"envoy:1", true, "2"}, twin{"envoy:2", true, "2"}, "envoy-2"},
	} {
		assert.Equal(t, c.want, standbyTwin(podWithTwins(c.one, c.two), sidecar), name)
	}
}
