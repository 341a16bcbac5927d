package integration

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/dev/cluster"
)

// longOutage is a duration of an outage, in seconds, after which reflectors of client-go back off for 30 s.
const longOutage = 40.0

// watchesDown returns, for each watch of a role, the time in seconds since the watch failed.
func watchesDown(ctx context.Context, role cluster.Role) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, role.Metrics, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		return nil, err
	}
	down := map[string]float64{}
	for _, metric := range families["outrigger_watch_down_seconds"].GetMetric() {
		down[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
	}
	if len(down) == 0 {
		return nil, fmt.Errorf("%s reports no watches", role.Name)
	}
	return down, nil
}

// awaitWatches waits until holds returns true for the watches of a role.
func (s *scenario) awaitWatches(role cluster.Role, what string, holds func(down map[string]float64) bool) {
	s.t.Helper()
	s.poll("the watches of "+role.Name+" to be "+what, func() (bool, error) {
		down, err := watchesDown(s.ctx, role)
		return err == nil && holds(down), err
	})
}

func allUp(down map[string]float64) bool {
	for _, seconds := range down {
		if seconds > 0 {
			return false
		}
	}
	return true
}

// sidecarImage returns the image of the sidecar of a new pod, or an empty string if the pod gets no sidecar.
func sidecarImage(ctx context.Context, app string) (string, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: app, Name: "probe", Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
	if err := stack.kube.Create(ctx, pod, client.DryRunAll); err != nil {
		return "", err
	}
	for _, container := range pod.Spec.Containers {
		if container.Name == "side" {
			return container.Image, nil
		}
	}
	return "", nil
}

func TestNoProcessDecidesFromSidecarSetsOlderThanAnOutageOfTheAPIServer(t *testing.T) {
	s := newScenario(t, 0, nil)
	var roles []cluster.Role
	for _, role := range stack.Roles() {
		if process, err := stack.Process(role.Name); err == nil && process.Running {
			roles = append(roles, role)
		}
	}
	for _, role := range roles {
		s.awaitWatches(role, "up", allUp)
	}
	require.NoError(t, stack.Kill(cluster.APIServer))
	up := func() { require.NoError(t, stack.StartAgain(context.WithoutCancel(s.ctx), cluster.APIServer)) }
	t.Cleanup(func() {
		up()
		// The controller manager is restarted, because its watches back off for half a minute.
		require.NoError(t, stack.Kill(cluster.ControllerManager))
		require.NoError(t, stack.StartAgain(context.WithoutCancel(s.ctx), cluster.ControllerManager))
	})
	for _, role := range roles {
		s.awaitWatches(role, "down for long", func(down map[string]float64) bool {
			for _, seconds := range down {
				if seconds < longOutage {
					return false
				}
			}
			return true
		})
	}
	up()
	back := time.Now()
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"}]`))
	var rejected error
	s.poll("the edit to be accepted", func() (bool, error) {
		rejected = stack.kube.Patch(s.ctx, s.set, patch)
		return rejected == nil, nil
	})
	t.Logf("%s after the API server the edit was accepted", time.Since(back))
	s.watched.Expect("side:v2")
	var rejections []error
	s.poll("a pod to be admitted", func() (bool, error) {
		image, err := sidecarImage(s.ctx, s.name)
		if err != nil {
			rejections = append(rejections, err)
			return false, nil
		}
		require.Equal(t, "side:v2", image, "a pod that was admitted after the edit, after %v", rejections)
		return true, nil
	})
	t.Logf("%s after the API server a pod was admitted, after %v", time.Since(back), rejections)
	// 25 s is longer than any delay of an overloaded machine, and shorter than the backoff of client-go.
	soon, cancel := context.WithTimeout(s.ctx, 25*time.Second)
	defer cancel()
	s.ctx = soon
	for _, role := range roles {
		s.awaitWatches(role, "up again", allUp)
		t.Logf("%s after the API server the watches of %s had been up for a second", time.Since(back), role.Name)
	}
}
