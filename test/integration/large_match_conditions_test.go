//go:build large

package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/match"
)

const (
	raceSets = 100
	racePods = 100 // for each SidecarSet
	raceJobs = 20  // pods that are created at the same time
)

// excluded returns the number of pods for which the API server did not call the webhook.
func excluded(t *testing.T, metrics rest.Interface) int {
	t.Helper()
	body, err := metrics.Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	total := 0.0
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, len(body)+1)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, "apiserver_admission_match_condition_exclusions_total{") && strings.Contains(line, `name="pods.outrigger.io"`) {
			value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
			require.NoError(t, err)
			total += value
		}
	}
	return int(total)
}

// burst creates pods with one label in parallel, and returns the number of pods without sidecars.
func (c *conditions) burst(app string) int {
	var plain atomic.Int64
	var jobs sync.WaitGroup
	for range raceJobs {
		jobs.Go(func() {
			for range racePods / raceJobs {
				n, err := c.create(map[string]string{"app": app})
				if assert.NoError(c.t, err) && n == 1 {
					plain.Add(1)
				}
			}
		})
	}
	jobs.Wait()
	return int(plain.Load())
}

// widen adds a label to the match condition like the admission of a SidecarSet, but does not wait until the API
// server uses the condition.
func (c *conditions) widen(app string) {
	live := c.configuration()
	wanted := live.DeepCopy()
	scope, err := match.NewScope(&setFor("s", "app", app).Spec)
	require.NoError(c.t, err)
	for i := range wanted.Webhooks[0].MatchConditions {
		if one := &wanted.Webhooks[0].MatchConditions[i]; one.Name == match.ConditionName {
			one.Expression = match.ParseCondition(one.Expression).Union(match.NewCondition(scope)).Expression()
		}
	}
	require.NoError(c.t, c.kube.Patch(c.t.Context(), wanted, client.MergeFrom(live)))
}

// The test creates 100 SidecarSets, and 100 pods immediately after the creation of each SidecarSet. The test
// counts the pods for which the API server does not call the webhook. For comparison, the test repeats the
// count without the wait during admission. The test also counts the pods without sidecars if the webhook runs
// without --match-conditions.
func TestLargeMatchConditionsAreFollowedBeforeTheFirstPod(t *testing.T) {
	own, direct := startControlPlane(t, admissionregistrationv1.AddToScheme)
	config, err := own.RESTConfig()
	require.NoError(t, err)
	config.QPS, config.Burst = 2000, 4000
	fast, err := client.New(config, client.Options{Scheme: direct.Scheme()})
	require.NoError(t, err)
	set, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	metrics := set.Discovery().RESTClient()
	c := &conditions{t: t, kube: fast}
	require.NoError(t, fast.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apps"}}))
	_, err = own.StartRole(t.Context(), "webhook", "--match-conditions")
	require.NoError(t, err)
	require.Equal(t, "false", c.expression())

	const pods = raceSets * racePods
	var created time.Duration
	plain, before := 0, excluded(t, metrics)
	for i := range raceSets {
		name, start := fmt.Sprint("with-", i), time.Now()
		require.NoError(t, fast.Create(t.Context(), setFor(name, "app", name)))
		created += time.Since(start)
		plain += c.burst(name)
	}
	missed := excluded(t, metrics) - before
	t.Logf("with --match-conditions: the webhook was not called for %d of %d pods; %d pods have no sidecar; the creation of a SidecarSet took %v", missed, pods, plain, created/raceSets)

	before = excluded(t, metrics)
	for i := range raceSets {
		name := fmt.Sprint("unwaited-", i)
		c.widen(name)
		c.burst(name)
	}
	t.Logf("without the wait of the admission: the webhook was not called for %d of %d pods", excluded(t, metrics)-before, pods)

	require.NoError(t, own.Stop("webhook"))
	_, err = own.StartRole(t.Context(), "webhook-without")
	require.NoError(t, err)
	plain = 0
	for i := range raceSets {
		name := fmt.Sprint("without-", i)
		require.NoError(t, fast.Create(t.Context(), setFor(name, "app", name)))
		plain += c.burst(name)
	}
	t.Logf("without --match-conditions: %d of %d pods have no sidecar", plain, pods)
	assert.Zero(t, missed)
}
