package upgrade

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

type twin struct {
	image   string
	ready   bool
	version string
	active  bool
}

func podWithTwins(one, two twin) *corev1.Pod {
	p := &corev1.Pod{}
	p.Annotations = map[string]string{}
	for name, t := range map[string]twin{"envoy-1": one, "envoy-2": two} {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: t.image})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Ready: t.ready})
		p.Annotations[v1alpha1.VersionAnnotationPrefix+name] = t.version
		if t.active {
			p.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation] = `{"envoy":"` + name + `"}`
		}
	}
	return p
}

func TestSpec7_7_StandbyTwin(t *testing.T) {
	sidecar := podstate.Sidecar{Name: "envoy", Image: "envoy:3", EmptyImage: "empty:1"}
	for name, c := range map[string]struct {
		one, two twin
		want     string
	}{
		"the empty one":                              {twin{"envoy:1", true, "1", false}, twin{"empty:1", true, "0", false}, "envoy-2"},
		"the empty one, the other way round":         {twin{"empty:1", true, "0", false}, twin{"envoy:1", true, "7", false}, "envoy-1"},
		"the empty one even if the other is unready": {twin{"envoy:1", false, "1", false}, twin{"empty:1", true, "0", false}, "envoy-2"},
		"none is empty: the one not ready":           {twin{"envoy:1", true, "1", false}, twin{"envoy:bad", false, "9", false}, "envoy-2"},
		"none is empty, both ready: the older":       {twin{"envoy:1", true, "10", false}, twin{"envoy:2", true, "9", false}, "envoy-2"},
		"none is empty, both down: the older":        {twin{"envoy:1", false, "3", false}, twin{"envoy:2", false, "20", false}, "envoy-1"},
		"both empty: the one not ready":              {twin{"empty:1", false, "0", false}, twin{"empty:1", true, "0", false}, "envoy-1"},
		"a damaged version is not the older":         {twin{"envoy:1", true, "x", true}, twin{"envoy:2", true, "2", false}, "envoy-2"},
		"nor is the other":                           {twin{"envoy:1", true, "1", false}, twin{"envoy:2", true, "x", true}, "envoy-1"},
		"equally old: the one not active":            {twin{"envoy:1", true, "2", false}, twin{"envoy:2", true, "2", true}, "envoy-1"},
		"nothing tells them apart: the second one":   {twin{"envoy:1", true, "2", false}, twin{"envoy:2", true, "2", false}, "envoy-2"},
	} {
		pod := podWithTwins(c.one, c.two)
		active, err := record.ActiveContainers(pod.Annotations)
		require.NoError(t, err)
		assert.Equal(t, c.want, standbyTwin(pod, sidecar, active["envoy"]), name)
	}
}
