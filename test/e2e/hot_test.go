//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

func serverImage(release string) string { return repository + "server:" + release }

// newHotScenario creates n pods with the sidecar of examples/hot-upgrade.
func newHotScenario(t *testing.T, n int) *environment {
	t.Helper()
	manifest, err := os.ReadFile("../../examples/hot-upgrade/sidecarset.yaml")
	require.NoError(t, err)
	var example v1alpha1.SidecarSet
	require.NoError(t, yaml.UnmarshalStrict(manifest, &example))
	server := &example.Spec.Containers[0]
	server.Name, server.Image, server.UpgradeStrategy.HotUpgradeEmptyImage = sidecar, serverImage("r1"), empty
	s := newEnvironment(t, 1, func(set *v1alpha1.SidecarSet) {
		set.Spec.Containers, set.Spec.Volumes = example.Spec.Containers, example.Spec.Volumes
	})
	s.deploy(n, serverImage("r1"))
	return s
}

// load contains the results of requests to all pods. Each client sends its requests one after the other.
type load struct {
	asked atomic.Int64
	mu    sync.Mutex
	// seen counts the responses of each release.
	seen   map[string]int
	failed []error
}

// asking sends requests until the test calls stop. For each pod, one client uses keep-alive, and one client
// opens a connection for each request.
func (s *environment) asking() (l *load, stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	l = &load{seen: map[string]int{}}
	var clients sync.WaitGroup
	for _, pod := range s.pods() {
		for _, keepAlive := range []bool{true, false} {
			clients.Go(func() { l.ask(ctx, "http://"+pod.Status.PodIP+":8080", keepAlive) })
		}
	}
	return l, func() {
		cancel()
		clients.Wait()
	}
}

// pace is the pause between two requests of a client, so that the upgrade gets CPU time.
const pace = 2 * time.Millisecond

func (l *load) ask(ctx context.Context, url string, keepAlive bool) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: !keepAlive}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for {
		release, err := get(client, url)
		l.count(release, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace):
		}
	}
}

func (l *load) count(release string, err error) {
	l.asked.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = append(l.failed, err)
		return
	}
	l.seen[release]++
}

// get returns the release of the server that responds.
func get(client *http.Client, url string) (string, error) {
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	release, _, _ := strings.Cut(string(body), " ")
	return release, err
}

func TestSpec7_7_NoRequestFailsOverFiveHotUpgrades(t *testing.T) {
	s := newHotScenario(t, 2)
	load, stop := s.asking()
	for _, release := range releases()[1:] {
		s.upgradeTo(serverImage(release))
		s.await(observer.Converged(2))
		s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonRolloutComplete)
		before := load.asked.Load()
		s.poll("requests to the release that is left", func() (bool, error) { return load.asked.Load() > before+100, nil })
	}
	stop()
	t.Logf("%d requests, of which %d failed; answers: %v", load.asked.Load(), len(load.failed), load.seen)
	assert.Empty(t, load.failed)
	for _, release := range releases() {
		assert.Positive(t, load.seen[release], release)
	}
	s.within(1)
}

func TestSpec7_7_TheOldTwinServesWhileTheNewOneMigratesSlowly(t *testing.T) {
	s := newHotScenario(t, 1)
	pod := s.pods()[0]
	load, stop := s.asking()
	s.upgradeTo(slow)
	// The test waits for the first event in which the spec of the other twin has the empty image.
	_, err := s.watched.AwaitPod(s.ctx, pod.UID, func(p *corev1.Pod) bool { return image(p, sidecar+"-1") == empty })
	require.NoError(t, err)
	release, err := get(http.DefaultClient, "http://"+pod.Status.PodIP+":8080")
	require.NoError(t, err)
	assert.Equal(t, "slow", release, "the old twin was taken before the new one served")
	s.await(observer.Converged(1))
	stop()
	t.Logf("%d requests, of which %d failed; answers: %v", load.asked.Load(), len(load.failed), load.seen)
	assert.Empty(t, load.failed)
	assert.Positive(t, load.seen["r1"])
	s.within(1)
}

func TestSpec7_7_AMissingReleaseLeavesTheOldOneServing(t *testing.T) {
	s := newHotScenario(t, 2)
	load, stop := s.asking()
	s.upgradeTo(absent)
	s.awaitReason(v1alpha1.ConditionDegraded, "ImagePullBackOff")
	s.upgradeTo(serverImage("r2"))
	s.await(observer.Converged(2))
	stop()
	assert.Empty(t, load.failed)
	assert.Positive(t, load.seen["r2"])
	s.within(1)
}

func image(pod *corev1.Pod, container string) string {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == container {
			return c.Image
		}
	}
	return ""
}
