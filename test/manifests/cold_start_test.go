package manifests

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/outrigger/outrigger/dev/cluster"
)

// switchOn is the patch with which the webhook role adds the rules of the pod webhook. No webhook runs in this
// test, so the Service has no endpoint, as if the node of the webhook was lost.
const switchOn = `[{"op":"add","path":"/webhooks/0/rules","value":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"],"scope":"Namespaced"}]}]`

// All nodes are new. The pods that make a node ready are created without the webhook. Ordinary pods are
// rejected until the webhook runs.
func TestSpec4_13_AColdClusterCreatesThePodsThatMakeItsNodesReady(t *testing.T) {
	t.Parallel()
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), WithoutNodes: true, WithoutTemporal: true})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	client := clientOf(t, c)

	kubectl(t, c, "", "apply", "--server-side", "--force-conflicts", "-k", "../../config/default")
	assertColdStart(t, c, client, map[string]bool{"kube-flannel": true, "calico-system": true, "longhorn-system": true, "my-network": false})
	kubectl(t, c, "", "label", "namespace", "my-network", "outrigger.io/injection=disabled")
	assertColdStart(t, c, client, map[string]bool{"my-network": true})
	kubectl(t, c, "", "label", "namespace", "my-network", "outrigger.io/injection-")

	kubectl(t, c, "", "get", "pods", "--all-namespaces", "-o", "custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,CLASS:.spec.priorityClassName")

	release := render(t, "--set=excludedNamespaces={my-network}")
	kubectl(t, c, release, "apply", "--server-side", "--force-conflicts", "-f", "-")
	assertColdStart(t, c, client, map[string]bool{"kube-flannel": false, "my-network": true})
}

func assertColdStart(t *testing.T, c *cluster.Cluster, client kubernetes.Interface, namespaces map[string]bool) {
	t.Helper()
	kubectl(t, c, "", "patch", "mutatingwebhookconfiguration", "outrigger", "--type=json", "--patch="+switchOn)
	type pod struct {
		namespace, class string
		created          bool
	}
	pods := []pod{
		{"kube-system", "system-node-critical", true},
		{"kube-system", "system-cluster-critical", true}, // A konnectivity agent has this priority class.
		{"kube-system", "", false},
		{"kruise-system", "system-cluster-critical", true},
		{"default", "", false},
		{"default", "system-node-critical", false},
	}
	for namespace, created := range namespaces {
		pods = append(pods, pod{namespace, "", created}, pod{namespace, "system-node-critical", created})
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
	for _, one := range pods {
		made := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "agent"},
			Spec:       corev1.PodSpec{PriorityClassName: one.class, Containers: []corev1.Container{{Name: "agent", Image: "agent:1"}}},
		}
		_, err := client.CoreV1().Pods(one.namespace).Create(t.Context(), made, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if one.created {
			assert.NoError(t, err, "%+v", one)
		} else {
			assert.ErrorContains(t, err, `failed calling webhook "pods.outrigger.io"`, "%+v", one)
		}
	}
}
