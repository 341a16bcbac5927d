package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube/crd"
)

// policed is a cluster with the policies of config/policy.
type policed struct {
	t       *testing.T
	cluster *cluster.Cluster
}

// injectedPod is a pod with a sidecar, a native sidecar, an app container and an init container.
const injectedPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}, annotations: {note: a}}
spec:
  initContainers:
  - {name: prepare, image: "prepare:1"}
  - {name: native, image: "native:1", restartPolicy: Always, env: [{name: IS_INJECTED, value: "true"}]}
  containers:
  - {name: app, image: "app:1", env: [{name: IS_INJECTED, value: "false"}], resources: {requests: {cpu: 10m}}}
  - {name: side, image: "side:1", env: [{name: A, value: b}, {name: IS_INJECTED, value: "true"}]}
`

// newPoliced creates a cluster with a policy, and asserts that the API server has found no error in the
// expressions of the policy.
func newPoliced(t *testing.T, options cluster.Options, manifest, policy string) *policed {
	t.Helper()
	ctrllog.SetLogger(logr.Discard())
	options.Dir = t.TempDir()
	c, err := cluster.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	kubectl(t, c, "", "apply", "-f", manifest)
	kubectl(t, c, "", "wait", "validatingadmissionpolicy/"+policy, "--for=jsonpath={.status.observedGeneration}=1", "--timeout=1m")
	assert.Equal(t, "{}", kubectl(t, c, "", "get", "validatingadmissionpolicy", policy, "-o", "jsonpath={.status.typeChecking}"))
	return &policed{t, c}
}

// patch is a patch of a pod or of the definition.
type patch struct {
	resource    schema.GroupVersionResource
	namespace   string
	name        string
	kind        types.PatchType
	body        string
	subresource []string
}

func ofPod(kind types.PatchType, body string, subresource ...string) patch {
	return patch{corev1.SchemeGroupVersion.WithResource("pods"), "default", "web", kind, body, subresource}
}

func ofDefinition(kind types.PatchType, body string, subresource ...string) patch {
	return patch{apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), "", crd.Name, kind, body, subresource}
}

// try sends a patch in a dry run with the service account of a role, and returns the error.
func (p *policed) try(role string, one patch) error {
	p.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.cluster.RoleKubeconfig(role))
	require.NoError(p.t, err)
	client, err := dynamic.NewForConfig(config)
	require.NoError(p.t, err)
	_, err = client.Resource(one.resource).Namespace(one.namespace).Patch(p.t.Context(), one.name, one.kind, []byte(one.body),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, one.subresource...)
	return err
}

// awaitInForce waits until a patch is rejected.
func (p *policed) awaitInForce(role string, one patch) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.try(role, one) != nil }, time.Minute, 100*time.Millisecond)
}

func TestTheWorkerWritesNothingOfPodsButImagesAnnotationsAndItsCondition(t *testing.T) {
	p := newPoliced(t, cluster.Options{WithoutNodes: true, WithoutTemporal: true}, "../../config/policy/worker.yaml", "outrigger-worker")
	kubectl(t, p.cluster, injectedPod, "apply", "-f", "-")
	pod := func(operation string) patch { return ofPod(types.JSONPatchType, "["+operation+"]") }
	image := func(list string, index int) patch {
		return pod(fmt.Sprintf(`{"op":"replace","path":"/spec/%s/%d/image","value":"other:2"}`, list, index))
	}
	status := func(body string) patch { return ofPod(types.StrategicMergePatchType, body, "status") }
	p.awaitInForce(cluster.Worker, image("containers", 0))
	for name, allowed := range map[string]patch{
		"a sidecar's image":       image("containers", 1),
		"a native sidecar's":      image("initContainers", 1),
		"an annotation":           pod(`{"op":"add","path":"/metadata/annotations/other","value":"b"}`),
		"an annotation's value":   pod(`{"op":"replace","path":"/metadata/annotations/note","value":"b"}`),
		"its condition":           status(`{"status":{"conditions":[{"type":"SidecarSetUpgradable","status":"False"}]}}`),
		"its condition, and back": status(`{"status":{"conditions":[{"type":"SidecarSetUpgradable","status":"True"}]}}`),
	} {
		assert.NoError(t, p.try(cluster.Worker, allowed), name)
	}
	for says, denied := range map[string]patch{
		"images and resources of injected containers only":                     image("containers", 0),
		"images and resources of injected init containers only":                image("initContainers", 0),
		"the worker changes only images and resources of containers of a spec": pod(`{"op":"add","path":"/spec/activeDeadlineSeconds","value":1}`),
		"resources of containers of a spec":                                    ofPod(types.StrategicMergePatchType, `{"spec":{"resources":{"requests":{"cpu":"20m"}}}}`, "resize"),
		"only images":                                                          pod(`{"op":"add","path":"/spec/tolerations/-","value":{"key":"a","operator":"Exists"}}`),
		"no labels":                                                            pod(`{"op":"replace","path":"/metadata/labels/app","value":"db"}`),
		"finalizers":                                                           pod(`{"op":"add","path":"/metadata/finalizers","value":["a/b"]}`),
		"ownerReferences":                                                      pod(`{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"b"}]}`),
		"removes no annotations":                                               pod(`{"op":"remove","path":"/metadata/annotations/note"}`),
		"only the condition SidecarSetUpgradable":                              status(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`),
		"SidecarSetUpgradable of a status":                                     status(`{"status":{"phase":"Failed"}}`),
		"the worker changes only the condition":                                status(`{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}`),
		"of a status":                                                          status(`{"status":{"resize":"Proposed"}}`),
		"SidecarSetUpgradable of a":                                            status(`{"status":{"containerStatuses":[{"name":"app","ready":true,"image":"a","imageID":"b","restartCount":0}]}}`),
	} {
		err := p.try(cluster.Worker, denied)
		require.ErrorContains(t, err, "ValidatingAdmissionPolicy 'outrigger-worker'", says)
		assert.ErrorContains(t, err, says)
	}
}

func TestTheDefinitionHasNoConversionOrThatOfOurService(t *testing.T) {
	p := newPoliced(t, cluster.Options{WithoutNodes: true, WithoutTemporal: true}, "../../config/policy/definition.yaml", "outrigger-definition")
	definition := func(operation string) patch { return ofDefinition(types.JSONPatchType, "["+operation+"]") }
	conversion := func(config string) patch {
		return definition(`{"op":"add","path":"/spec/conversion","value":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{` + config + `}}}}`)
	}
	const ours = `"service":{"namespace":"kruise-system","name":"outrigger-webhook","path":"/convert"}`
	p.awaitInForce(cluster.Webhook, conversion(`"url":"https://elsewhere.example/convert"`))
	for name, allowed := range map[string]patch{
		"ours":         conversion(ours),
		"none":         definition(`{"op":"add","path":"/spec/conversion","value":{"strategy":"None"}}`),
		"a field more": definition(`{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/further","value":{"type":"string"}}`),
	} {
		assert.NoError(t, p.try(cluster.Webhook, allowed), name)
	}
	for name, denied := range map[string]patch{
		"another name":      conversion(strings.Replace(ours, "outrigger-webhook", "other", 1)),
		"another namespace": conversion(strings.Replace(ours, "kruise-system", "default", 1)),
		"a URL":             conversion(`"url":"https://elsewhere.example/convert"`),
		"a version less":    definition(`{"op":"replace","path":"/spec/versions/1/served","value":false}`),
		"a label":           definition(`{"op":"add","path":"/metadata/labels","value":{"a":"b"}}`),
		"a finalizer":       definition(`{"op":"add","path":"/metadata/finalizers","value":["a/b"]}`),
	} {
		assert.ErrorContains(t, p.try(cluster.Webhook, denied), "ValidatingAdmissionPolicy 'outrigger-definition'", name)
	}
	// The operator writes status.storedVersions.
	assert.NoError(t, p.try(cluster.Operator, ofDefinition(types.MergePatchType, `{"status":{"storedVersions":["v1alpha1"]}}`, "status")))
	for _, role := range []string{cluster.Operator, cluster.Worker} {
		assert.True(t, apierrors.IsForbidden(p.try(role, conversion(ours))), role)
	}
}

// A patch of the CustomResourceDefinition can change the conversion, and the conversion determines the
// content of SidecarSets.
func TestTheWebhookRoleAlonePatchesTheDefinition(t *testing.T) {
	var may []string
	all := rendered(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(name, "ClusterRole ") && !strings.HasPrefix(name, "Role ") {
			continue
		}
		var role rbacv1.ClusterRole
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(all[name], &role))
		for _, rule := range role.Rules {
			changes := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
			if changes && (slices.Contains(rule.Resources, "customresourcedefinitions") || slices.Contains(rule.Resources, "*")) {
				may = append(may, name)
			}
		}
	}
	assert.Equal(t, []string{"ClusterRole /outrigger-webhook"}, may)
}

const policedSets = `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: cold}
spec:
  selector: {matchLabels: {app: web}}
  updateStrategy: {maxUnavailable: 2}
  containers: [{name: cold, image: "cold:v1"}]
  initContainers: [{name: native, image: "native:v1", restartPolicy: Always}]
---
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: hot}
spec:
  selector: {matchLabels: {app: web}}
  updateStrategy: {maxUnavailable: 2}
  containers: [{name: hot, image: "hot:v1", upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: "empty:v1"}}]
`

const policedPods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: "app:1"}]}
`

func TestThePolicyOfTheWorkerAllowsRollouts(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, cluster.Options{Nodes: 1}, "../../config/policy/worker.yaml", "outrigger-worker")
	for _, role := range []string{cluster.Operator, cluster.Webhook, cluster.Worker} {
		_, err := p.cluster.StartRole(t.Context(), role)
		require.NoError(t, err)
	}
	kubectl(t, p.cluster, policedSets, "apply", "-f", "-")
	kubectl(t, p.cluster, policedPods, "apply", "-f", "-")
	kubectl(t, p.cluster, "", "rollout", "status", "deployment/web", "--timeout=1m")
	kubectl(t, p.cluster, "", "patch", "sidecarset", "cold", "--type=json",
		`--patch=[{"op":"replace","path":"/spec/containers/0/image","value":"cold:v2"},{"op":"replace","path":"/spec/initContainers/0/image","value":"native:v2"}]`)
	kubectl(t, p.cluster, "", "patch", "sidecarset", "hot", "--type=json", `--patch=[{"op":"replace","path":"/spec/containers/0/image","value":"hot:v2"}]`)
	for _, set := range []string{"cold", "hot"} {
		kubectl(t, p.cluster, "", "wait", "sidecarset/"+set, "--for=jsonpath={.status.observedGeneration}=2", "--timeout=1m")
		kubectl(t, p.cluster, "", "wait", "sidecarset/"+set, `--for=jsonpath={.status.conditions[?(@.type=="Progressing")].reason}=RolloutComplete`, "--timeout=2m")
		kubectl(t, p.cluster, "", "wait", "sidecarset/"+set, "--for=jsonpath={.status.updatedReadyPods}=3", "--timeout=2m")
	}
	kubectl(t, p.cluster, "", "wait", "pods", "--selector=app=web", "--for=condition=SidecarSetUpgradable", "--timeout=1m")
	images := kubectl(t, p.cluster, "", "get", "pods", "--selector=app=web", "-o", "jsonpath={range .items[*]}{.spec.containers[*].image} {.spec.initContainers[*].image}{\"\\n\"}{end}")
	for line := range strings.Lines(images) {
		for _, image := range []string{"cold:v2", "hot:v2", "empty:v1", "native:v2", "app:1"} {
			assert.Contains(t, line, image)
		}
	}
}
