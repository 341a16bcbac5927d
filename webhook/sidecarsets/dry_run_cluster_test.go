package sidecarsets

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube"
)

// environment is a real API server, with a client of the webhook and a client of an administrator.
type environment struct {
	t              *testing.T
	ctx            context.Context
	webhook, admin podDryRun
}

// TestDryRunOnAnAPIServer uses a real API server, with and without the namespace and quota.
func TestDryRunOnAnAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir(), Nodes: 1, WithoutTemporal: true})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	a := &environment{t: t, ctx: ctx, webhook: reached(t, c.RoleKubeconfig(cluster.Webhook)), admin: reached(t, c.Kubeconfig)}

	a.answers()
	a.deleteQuota()
	a.lostNamespace()
	a.policies()
}

func reached(t *testing.T, kubeconfig string) podDryRun {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	require.NoError(t, admissionregistrationv1.AddToScheme(scheme))
	made, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return podDryRun{client: made}
}

func (a *environment) ask(d podDryRun, spec string) ([]string, error) {
	raw, err := yaml.YAMLToJSON([]byte("spec: " + spec))
	require.NoError(a.t, err)
	causes, err := d.causes(a.ctx, raw, nil, nil)
	var fields []string
	for _, cause := range causes {
		fields = append(fields, fmt.Sprintf("%s: %s", cause.Field, cause.Type))
	}
	return fields, err
}

const valid = `{containers: [{name: a, image: b}]}`

func (a *environment) answers() {
	// A new namespace has no default service account yet, and a new ResourceQuota has no status yet.
	stored := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: dryRunNamespace, Name: "real"}}
	stored.Spec.Containers = []corev1.Container{{Name: "a", Image: "b"}}
	require.Eventually(a.t, func() bool {
		err := a.webhook.client.Create(a.ctx, stored)
		return err != nil && strings.Contains(err.Error(), "exceeded quota: no-pods")
	}, 3*time.Minute, 100*time.Millisecond)
	for spec, want := range map[string][]string{
		valid: nil,
		// Kubernetes accepts an unmasked /proc only in a pod with its own user namespace.
		`{containers: [{name: a, image: b, securityContext: {procMount: Unmasked}}]}`: nil,
		// The API server rejects a hook that sleeps longer than terminationGracePeriodSeconds of the pod, so the dry
		// run raises this field to the longest sleep.
		`{containers: [{name: a, image: b, lifecycle: {preStop: {sleep: {seconds: 60}}}}, {name: c, image: b, lifecycle: {preStop: {sleep: {seconds: 45}}}}]}`: nil,
		// Kubernetes accepts a HostProcess container only in a HostProcess pod in the network of the host.
		`{containers: [{name: a, image: b, securityContext: {windowsOptions: {hostProcess: true}}}], initContainers: [{name: i, image: b}]}`:                                                            nil,
		`{containers: [{name: h, image: b, ports: [{containerPort: 1}], securityContext: {windowsOptions: {hostProcess: true}}, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}]}`: nil,
		`{containers: [{name: a, image: b, fieldOfTheFuture: 1}], volumes: [{name: v, sourceOfTheFuture: {}}]}`:                                                                                         nil,
		`{initContainers: [{name: app, image: b}]}`: nil,
		`{containers: [{name: h, image: b, ports: [{containerPort: 1}], upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}]}`: nil,
		`{containers: [{name: a, image: b, stdin: "yes"}]}`: {"spec: FieldValueInvalid"},
		`{containers: [{name: a, image: b, ports: [{containerPort: 70000}]}], volumes: [{name: v, hostPath: {path: ../x}}], imagePullSecrets: [{}]}`: {
			"spec.volumes[0].hostPath.path: FieldValueInvalid", "spec.containers[0].ports[0].containerPort: FieldValueInvalid",
		},
	} {
		got, err := a.ask(a.webhook, spec)
		require.NoError(a.t, err, spec)
		assert.Equal(a.t, want, got, spec)
	}
	var pods corev1.PodList
	require.NoError(a.t, a.admin.client.List(a.ctx, &pods, client.InNamespace(dryRunNamespace)))
	assert.Empty(a.t, pods.Items)
}

// deleteQuota deletes the ResourceQuota. The API server then admits a valid pod in the
// dry run, and the dry run reports no causes.
func (a *environment) deleteQuota() {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: dryRunNamespace, Name: dryRunQuota}}
	require.NoError(a.t, a.admin.client.Delete(a.ctx, quota))
	got, err := a.ask(a.webhook, valid)
	require.NoError(a.t, err)
	assert.Empty(a.t, got)
}

func (a *environment) lostNamespace() {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: dryRunNamespace}}
	require.NoError(a.t, a.admin.client.Delete(a.ctx, namespace))
	err := wait.PollUntilContextCancel(a.ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsNotFound(a.admin.client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)), nil
	})
	require.NoError(a.t, err)
	_, err = a.ask(a.webhook, valid)
	require.ErrorContains(a.t, err, "apply config/rbac", "without its namespace the webhook has no permissions there")
	got, err := a.ask(a.admin, valid)
	require.NoError(a.t, err, "an administrator's webhook helps itself")
	assert.Empty(a.t, got)
	require.NoError(a.t, a.admin.client.Get(a.ctx, client.ObjectKeyFromObject(namespace), namespace))
	assert.Equal(a.t, "privileged", namespace.Labels["pod-security.kubernetes.io/enforce"])
}

// If a policy of the cluster rejects the pod, the dry run returns an error, and the SidecarSet is not invalid.
func (a *environment) policies() {
	var namespace corev1.Namespace
	require.NoError(a.t, a.admin.client.Get(a.ctx, client.ObjectKey{Name: dryRunNamespace}, &namespace))
	enforce := func(level string) {
		namespace.Labels["pod-security.kubernetes.io/enforce"] = level
		require.NoError(a.t, a.admin.client.Update(a.ctx, &namespace))
	}
	enforce("restricted")
	err := wait.PollUntilContextCancel(a.ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		got, err := a.ask(a.admin, valid)
		assert.Empty(a.t, got)
		return err != nil, nil
	})
	require.NoError(a.t, err)
	got, err := a.ask(a.admin, valid)
	require.ErrorContains(a.t, err, "violates PodSecurity")
	require.ErrorContains(a.t, err, "exempt namespace outrigger-validation")
	assert.Empty(a.t, got)
	got, err = a.ask(a.admin, `{containers: [{name: A, image: b}]}`)
	require.NoError(a.t, err)
	assert.Equal(a.t, []string{"spec.containers[0].name: FieldValueInvalid"}, got, "what is invalid is found first")
}
