package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestSetImageRollsOut(t *testing.T) {
	scenario(t, "images")
	assert.Contains(t, shows(t, "set", "image", "images", "agent=agent:v2", "--dry-run=server"), "image updated (server dry run)")
	assert.Contains(t, shows(t, "get", "images"), "agent=agent:v1", "the dry run wrote something")
	assert.Equal(t, "sidecarset/images image updated\nnext: kubectl sidecarset status images --watch\n",
		shows(t, "set", "image", "images", "agent=agent:v2", "--reason=faster start"))
	shows(t, "status", "images", "--watch", "--timeout=3m")
	assert.Contains(t, shows(t, "get", "images"), "6 of 6 updated")
	assert.Contains(t, shows(t, "history", "images"), "faster start")
	shows(t, "set", "image", "images", "agent=agent:v3")
	shows(t, "status", "images", "--watch", "--timeout=3m")
	assert.Equal(t, 1, strings.Count(shows(t, "history", "images"), "faster start"), "the reason of another revision")
	assert.Equal(t, "sidecarset/images image unchanged\n", shows(t, "set", "image", "images", "agent=agent:v3"))
	_, err := sidecarset(t, "--as=bob", "set", "image", "images", "agent=agent:v4")
	require.ErrorContains(t, err, "not allowed")
}

// The kubelet of a deleted node does not observe an upgrade.
func TestTheDeletedNodeOfAPodIsNamed(t *testing.T) {
	kubectl(t, `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: nodeless}
spec:
  selector: {matchLabels: {app: nodeless}}
  containers: [{name: agent, image: "agent:v1"}]
`, "apply", "-f", "-")
	awaitInjection(t, "nodeless")
	kubectl(t, `
apiVersion: v1
kind: Node
metadata: {name: deleted}
spec: {taints: [{key: nodeless, effect: NoSchedule}]}
---
apiVersion: v1
kind: Pod
metadata: {name: nodeless-0, namespace: default, labels: {app: nodeless}}
spec:
  nodeName: deleted
  containers: [{name: app, image: "app:1"}]
`, "apply", "-f", "-")
	eventually(t, []string{"status", "nodeless"}, "1 of 1 updated, 1 of them ready")
	kubectl(t, "", "delete", "node", "deleted")
	require.Eventually(t, func() bool {
		for _, line := range strings.Split(shows(t, "list"), "\n") {
			if strings.HasPrefix(line, "nodeless ") {
				return strings.Contains(line, "LostNode:deleted")
			}
		}
		return false
	}, 3*time.Minute, 100*time.Millisecond)
	shows(t, "set", "image", "nodeless", "agent=agent:v2")
	const problem = "its node deleted does not exist: kubectl delete pods -n default --field-selector spec.nodeName=deleted --force"
	eventually(t, []string{"why", "sidecarset/nodeless"}, "default/nodeless-0 is Upgrading for ", ": agent: still runs agent:v1; "+problem)
	assert.Contains(t, shows(t, "why", "pod/nodeless-0"), "\n  "+problem+"\n")
	assert.Regexp(t, "Waiting: +default/nodeless-0, .*"+problem, shows(t, "status", "nodeless"))
}

// The API server omits the cause if a JSON patch does not apply. The test reorders the containers immediately
// before the API server receives the patch.
func TestSetImageFailsIfTheContainersChangedPlaces(t *testing.T) {
	kubectl(t, `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: places}
spec:
  selector: {matchLabels: {app: places}}
  containers: [{name: places-a, image: "a:v1"}, {name: places-b, image: "b:v1"}]
`, "apply", "-f", "-")
	config, err := stack.RESTConfig()
	require.NoError(t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	host, err := url.Parse(config.Host)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(host)
	proxy.Transport = transport
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			kubectl(t, "", "patch", "sidecarset", "places", "--type=json", "-p", `[{"op":"move","from":"/spec/containers/0","path":"/spec/containers/1"}]`)
		}
		proxy.ServeHTTP(w, r)
	}))
	defer server.Close()
	_, err = sidecarset(t, "--server="+server.URL, "set", "image", "places", "places-a=a:v2")
	require.EqualError(t, err, "SidecarSet places was changed in the meantime: check it, and try again")
	images := kubectl(t, "", "get", "sidecarset", "places", "-o", "jsonpath={.spec.containers[*].image}")
	assert.Equal(t, "b:v1 a:v1", images)
}

func TestAllOpenRunsArePausedAndResumed(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		scenario(t, name)
		setImage(t, name, "agent:bad")
		eventually(t, []string{"status", name}, "2 of 6 updated", "ImagePullBackOff", "Run:       ")
	}
	_, err := sidecarset(t, "pause", "--all", "--temporal-namespace=temporal-system")
	require.ErrorContains(t, err, "pause failed: no run is open, but the status of these SidecarSets shows an unfinished rollout: ")
	_, err = sidecarset(t, "pause", "one", "--temporal-namespace=temporal-system")
	require.ErrorContains(t, err, "namespace temporal-system has no open run of the SidecarSet, but status shows an unfinished rollout")
	out := shows(t, "pause", "--all", "--reason=incident")
	assert.Contains(t, out, "sidecarset/one paused")
	assert.Contains(t, out, "sidecarset/two paused")
	assert.Contains(t, shows(t, "set", "image", "one", "agent=other:bad"), "\npaused: by admin: incident (kubectl sidecarset resume one)\n", "the pause is not in status yet")
	for _, name := range []string{"one", "two"} {
		kubectl(t, "", "wait", "sidecarset/"+name, "--for=jsonpath={.status.rollout.hold}", "--timeout=3m")
	}
	require.NoError(t, stack.Stop("operator"), "status then shows the pause after the resume")
	shows(t, "resume", "two")
	undone := shows(t, "undo", "two", "--dry-run=none")
	require.NoError(t, stack.StartAgain(t.Context(), "operator"))
	assert.NotContains(t, undone, "paused: ")
	assert.Contains(t, undone, "next: kubectl sidecarset status two --watch\n")
	out = shows(t, "resume", "--all")
	assert.Contains(t, out, "sidecarset/one resumed\n")
	assert.Contains(t, out, "sidecarset/two ")
	eventually(t, []string{"status", "one"}, "Run:       generation 3, ")
}

func TestAPauseWithoutAWorkerIsNotConfirmedAndTakesEffectLater(t *testing.T) {
	scenario(t, "later")
	setImage(t, "later", "agent:bad")
	eventually(t, []string{"status", "later"}, "2 of 6 updated", "ImagePullBackOff", "Run:       ")
	require.NoError(t, stack.Stop("worker"))
	shown := shows(t, "status", "later")
	assert.Regexp(t, `Status:    Waiting \((the run does not respond|WorkerUnavailable)\)`, shown)
	assert.Contains(t, shown, "Run:       no worker responds for the run (kubectl sidecarset check)")
	assert.Contains(t, shown, "Next:      kubectl sidecarset check")
	assert.NotContains(t, shown, "Waiting: ")
	assert.Regexp(t, `no worker (responds for the run|claims the tasks)[^\n]*: start its process`, shows(t, "why", "sidecarset/later"))
	again := func() { require.NoError(t, stack.StartAgain(t.Context(), "worker")) }
	_, err := sidecarset(t, "pause", "later", "--reason=later")
	if !assert.ErrorContains(t, err, "not confirmed: no worker responds for the run") {
		again()
		return
	}
	assert.ErrorContains(t, err, "the pause takes effect once a worker runs; to withdraw it: kubectl sidecarset resume later; the spec pauses the rollout in any case: kubectl patch sidecarset later ")
	again()
	eventually(t, []string{"status", "later"}, "Status:    Paused", "by admin: later", "Run:       generation ")
	shows(t, "resume", "later")
}

func TestPodsThatAreOlderThanTheirSidecarSetAreTheHeadline(t *testing.T) {
	scenario(t, "older")
	kubectl(t, `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: newer}
spec:
  selector: {matchLabels: {app: older}}
  containers: [{name: newer, image: "newer:v1"}]
`, "apply", "-f", "-")
	defer kubectl(t, "", "delete", "sidecarset", "newer")
	const headline = "6 pods match, but have no sidecar"
	eventually(t, []string{"status", "newer"}, "Status:    "+headline+"\n", "Next:      kubectl sidecarset list --missing; recreate the pods: kubectl sidecarset restart newer\n")
	assert.Contains(t, shows(t, "list"), headline)
	assert.Contains(t, shows(t, "why", "sidecarset/newer"), headline)
}

func TestAWatchedListShowsTheRollout(t *testing.T) {
	scenario(t, "listed")
	changed := false
	watch(t, func(line string) bool {
		if strings.HasPrefix(line, "listed ") && !changed {
			changed = true
			setImage(t, "listed", "agent:bad")
		}
		return changed && strings.HasPrefix(line, "listed ") && strings.Contains(line, "ImagePullBackOff")
	}, "list", "-w")
}

func TestRestartRecreatesPodsWithinTheirDisruptionBudget(t *testing.T) {
	scenario(t, "again")
	kubectl(t, "", "run", "again-bare", "--image=app:1", "--labels=app=again")
	kubectl(t, "", "patch", "sidecarset", "again", "--type=json", "-p", `[{"op":"add","path":"/spec/containers/0/command","value":["sleep"]}]`)
	eventually(t, []string{"status", "again"}, "0 of 7 updated", "NotUpgradable")
	out := shows(t, "restart", "again", "--dry-run")
	assert.Equal(t, 6, strings.Count(out, " NotUpgradable "), out)
	assert.Contains(t, out, "not evicted: default/again-bare: no controller recreates it")

	kubectl(t, "", "create", "poddisruptionbudget", "again", "--selector=app=again,pod-template-hash", "--min-available=100%")
	kubectl(t, "", "wait", "poddisruptionbudget/again", "--for=jsonpath={.status.expectedPods}=6", "--timeout=3m")
	assert.Equal(t, 6, strings.Count(shows(t, "restart", "again", "--dry-run=server"), " is rejected: Cannot evict pod"))
	out, err := sidecarset(t, "restart", "again", "--timeout=30s")
	require.ErrorContains(t, err, "disruption budget")
	assert.NotContains(t, out, "\nevicted ")
	kubectl(t, "", "delete", "poddisruptionbudget", "again")

	kubectl(t, "", "label", "namespace", "default", "outrigger.io/injection=disabled")
	assert.Contains(t, shows(t, "restart", "again"), "sidecarset/again: no pod has to be evicted\n")
	kubectl(t, "", "label", "namespace", "default", "outrigger.io/injection-")

	ready := leastReady(t, "again")
	out = shows(t, "restart", "again", "--timeout=3m")
	assert.Contains(t, out, "sidecarset/again: 6 evicted, and their owners have as many ready pods as before\n")
	assert.GreaterOrEqual(t, ready(), 4, "maxUnavailable is 2")
	eventually(t, []string{"list"}, "again")
	assert.Contains(t, shows(t, "restart", "again"), "no pod has to be evicted")
	assert.Contains(t, shows(t, "status", "again"), "deployment/again in default  6 pods, 6 ready")
}

// leastReady watches the ready pods of a scenario. The returned function ends the watch, and returns the
// smallest number of ready pods.
func leastReady(t *testing.T, name string) func() int {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	least := make(chan int)
	go func() {
		seen := 6
		for tick := time.Tick(50 * time.Millisecond); ctx.Err() == nil; <-tick {
			var deployment appsv1.Deployment
			if err := stack.Kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &deployment); err == nil {
				seen = min(seen, int(deployment.Status.ReadyReplicas))
			}
		}
		least <- seen
	}()
	return func() int { stop(); return <-least }
}
