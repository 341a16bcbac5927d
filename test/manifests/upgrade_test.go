package manifests

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/outrigger/outrigger/dev/cluster"
)

// previous is the program of the previous release. Without previous, the roles of both releases
// run the current program with the arguments of their manifests.
var previous = flag.String("previous", "", "`file` of the outrigger program of testdata/releases/v0.1.0.yaml")

// upgrading is a cluster with the manifests of the previous release. The roles run as processes of this test,
// because no kubelet runs their pods.
type upgrading struct {
	t       *testing.T
	cluster *cluster.Cluster
	client  kubernetes.Interface
	service *service
	bin     string
}

// reachable replaces the Service of the webhook in manifests with a Service for a port on this machine.
func reachable(manifests string, port int) string {
	manifests = strings.ReplaceAll(manifests, "port: 443", fmt.Sprintf("port: %d", port))
	var kept []string
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		if !strings.Contains(document, "kind: Service\n") {
			kept = append(kept, document)
		}
	}
	return strings.Join(kept, "\n---\n") + `
---
apiVersion: v1
kind: Service
metadata: {name: outrigger-webhook, namespace: kruise-system}
spec: {type: ExternalName, externalName: localhost}
`
}

func newUpgrading(t *testing.T) *upgrading {
	t.Helper()
	u := &upgrading{t: t, bin: t.TempDir()}
	programs, err := filepath.Glob("../../bin/*")
	require.NoError(t, err)
	for _, program := range programs {
		target, err := filepath.Abs(program)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(target, filepath.Join(u.bin, filepath.Base(program))))
	}
	if *previous != "" {
		u.use(*previous)
	}
	// The port is not known yet, and the manifests that are applied at the start do not use the port.
	u.cluster, err = cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), Bin: u.bin, Nodes: 2})
	require.NoError(t, err)
	t.Cleanup(u.cluster.Shutdown)
	u.client = clientOf(t, u.cluster)
	u.service = newService(t, u.client)
	released, err := os.ReadFile("testdata/releases/v0.1.0.yaml")
	require.NoError(t, err)
	u.apply(string(released))
	return u
}

// use sets the program of the roles that start afterwards.
func (u *upgrading) use(program string) {
	u.t.Helper()
	target, err := filepath.Abs(program)
	require.NoError(u.t, err)
	link := filepath.Join(u.bin, "outrigger")
	require.NoError(u.t, os.Remove(link))
	require.NoError(u.t, os.Symlink(target, link))
}

func (u *upgrading) apply(manifests string) {
	u.t.Helper()
	kubectl(u.t, u.cluster, reachable(manifests, u.service.port), "apply", "--server-side", "--force-conflicts", "-f", "-")
}

func (u *upgrading) start(name string, args ...string) {
	u.t.Helper()
	_, err := u.cluster.StartRole(u.t.Context(), name, args...)
	require.NoError(u.t, err)
}

func (u *upgrading) stop(name string) {
	u.t.Helper()
	require.NoError(u.t, u.cluster.Stop(name))
}

func (u *upgrading) await(what string, done func() bool) {
	u.t.Helper()
	await(u.t, what, func() (bool, error) { return done(), nil })
}

// set returns the value at a JSONPath of the SidecarSet stream, in the API version of the previous release.
func (u *upgrading) set(path string) string {
	u.t.Helper()
	return kubectl(u.t, u.cluster, "", "get", "sidecarsets.v1alpha1.apps.kruise.io", "stream", "--output=jsonpath={"+path+"}")
}

func (u *upgrading) complete() bool {
	u.t.Helper()
	return u.set(`.status.conditions[?(@.type=="Progressing")].reason`) == "RolloutComplete"
}

// pods returns the number of pods for each image of the sidecar, and the resourceVersion of each pod by name.
func (u *upgrading) pods() (images map[string]int, versions map[string]string) {
	u.t.Helper()
	found, err := u.client.CoreV1().Pods("default").List(u.t.Context(), metav1.ListOptions{})
	require.NoError(u.t, err)
	images, versions = map[string]int{}, map[string]string{}
	for _, pod := range found.Items {
		versions[pod.Name] = pod.ResourceVersion
		for _, c := range pod.Spec.Containers {
			if c.Name == "side" {
				images[c.Image]++
			}
		}
	}
	return images, versions
}

// rollOver replaces the processes of each role, like a Deployment. A new webhook is ready before an old
// webhook stops.
func (u *upgrading) rollOver() {
	u.t.Helper()
	u.service.start(u.cluster, "webhook-2")
	u.stop("webhook-0")
	u.service.start(u.cluster, "webhook-3")
	u.stop("webhook-1")
	u.start("worker-2")
	u.stop("worker-1")
	leader := func() string {
		return kubectl(u.t, u.cluster, "", "get", "lease", "outrigger-operator", "--namespace=kruise-system", "--output=jsonpath={.spec.holderIdentity}")
	}
	before := leader()
	u.start("operator-2", "--leader-elect=true")
	u.stop("operator-1")
	u.await("the new operator to lead", func() bool { now := leader(); return now != "" && now != before })
}

const streamDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: stream}
spec:
  replicas: 20
  selector: {matchLabels: {app: stream}}
  template:
    metadata: {labels: {app: stream}}
    spec: {containers: [{name: app, image: "app:1"}]}
`

// The test upgrades the previous release to the current chart while pods are created. Every new pod is admitted
// with its sidecar, and existing pods are not written.
func TestAnUpgradeRejectsNoPodAndWritesNone(t *testing.T) {
	u := newUpgrading(t)
	for i := range 2 {
		u.service.start(u.cluster, fmt.Sprintf("webhook-%d", i))
	}
	u.start("worker-1")
	u.start("operator-1", "--leader-elect=true")
	u.await("the set to be taken", func() bool {
		_, err := tryKubectl(t, u.cluster, streamSet, "apply", "-f", "-")
		return err == nil
	})
	kubectl(t, u.cluster, streamDeployment, "apply", "-f", "-")
	kubectl(t, u.cluster, "", "rollout", "status", "deployment/stream", "--timeout=60s")
	u.await("the rollout to end", func() bool {
		return u.set(".status.updatedReadyPods") == "20" && u.complete()
	})
	images, before := u.pods()
	require.Equal(t, map[string]int{"side:v1": 20}, images)

	stream := newStream(t, u.client, 2)
	stream.await(t, "pods to be created", func() bool { return stream.injected.Load() > 50 })
	u.use("../../bin/outrigger")
	u.apply(render(t))
	u.rollOver()
	// The new operator reconciles this SidecarSet after all existing SidecarSets.
	kubectl(t, u.cluster, strings.ReplaceAll(streamSet, "stream", "later"), "apply", "-f", "-")
	u.await("the new operator to write status", func() bool {
		return kubectl(t, u.cluster, "", "get", "sidecarsets.v1alpha1.apps.kruise.io", "later", "--output=jsonpath={.status.observedGeneration}") == "1"
	})
	injected := stream.injected.Load()
	stream.await(t, "pods to be injected by the new webhooks", func() bool { return stream.injected.Load() > injected+200 })
	require.NoError(t, stream.end())
	assert.Zero(t, stream.late.Load(), "they went without their sidecar")
	_, after := u.pods()
	assert.Equal(t, before, after, "resourceVersions")
	t.Logf("%d pods were created, 0 rejected; 0 of 20 were written", stream.created.Load())

	kubectl(t, u.cluster, strings.ReplaceAll(streamSet, "side:v1", "side:v2"), "apply", "-f", "-")
	u.await("the next rollout to end", func() bool {
		images, _ := u.pods()
		return images["side:v2"] == 20 && u.set(".status.updatedReadyPods") == "20" && u.complete()
	})
}
