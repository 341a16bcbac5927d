package switchover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/internal/switchover"
)

// creating creates pods in a dry run, one after the other, until stop is called. Each pod must be injected
// exactly once.
func (s *scenario) creating() (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	broken, created := make(chan error, 1), 0
	go func() {
		defer close(broken)
		pace := time.NewTicker(50 * time.Millisecond)
		defer pace.Stop()
		for ; ctx.Err() == nil; <-pace.C {
			if err := s.injectedOnce(ctx); err != nil && ctx.Err() == nil {
				broken <- fmt.Errorf("after %d pods: %w", created, err)
				return
			}
			created++
		}
	}()
	return func() {
		s.t.Helper()
		cancel()
		require.NoError(s.t, <-broken)
		require.Positive(s.t, created)
		s.t.Log(created, "pods were tried")
	}
}

func (s *scenario) injectedOnce(ctx context.Context) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "new-", Labels: map[string]string{"app": "hot"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
	if err := s.client.Create(ctx, pod, client.DryRunAll); err != nil {
		return err
	}
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	if got := strings.Join(names, ","); got != "envoy-1,envoy-2,app" || pod.Annotations[v1alpha1.InjectedListAnnotation] != "hot" {
		return fmt.Errorf("containers %s, annotations %v", got, pod.Annotations)
	}
	return nil
}

func (s *scenario) upgrade() {
	s.t.Helper()
	for _, f := range workloads() {
		set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: f.name}}
		patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, f.upgraded)
		require.NoError(s.t, s.client.Patch(s.ctx, set, client.RawPatch(types.JSONPatchType, patch)))
	}
}

// report returns the JSON output of migrate check.
func (s *scenario) report() (report switchover.Report) {
	s.t.Helper()
	require.NoError(s.t, json.Unmarshal([]byte(s.check("-o", "json")), &report))
	return report
}

// remedies returns the commands of the report that restrict the webhook configurations of OpenKruise.
func (s *scenario) remedies() (commands []string) {
	s.t.Helper()
	for _, f := range s.report().Findings {
		if f.Effect == switchover.Differs && f.Remedy != "" {
			commands = append(commands, f.Remedy)
		}
	}
	return commands
}

// The test switches a cluster to Outrigger, upgrades pods, and switches the cluster back.
func TestThereAndBack(t *testing.T) {
	s := newScenario(t)
	for _, f := range workloads() {
		s.store(&f)
	}
	kruise := s.startOpenKruise()
	kruise.install()
	s.awaitReady()

	s.golden("before.txt", s.check())
	before := s.contents()
	require.Len(t, before, 1000)
	stop := s.creating()
	s.there(kruise)
	s.sameContents(before, "no pod is changed for the switch")
	stop()

	s.upgrade()
	s.awaitComplete()
	s.golden("after.txt", s.check())
	s.upgradedAsTheyWould()

	s.awaitCondition()
	upgraded := s.contents()
	stop = s.creating()
	s.back(kruise)
	stop()
	s.sameContents(upgraded, "no pod is changed for the way back")
	assert.False(t, kruise.late.Load(), "Outrigger is asked last, by the order of names")
	s.golden("before.txt", s.check())
	s.blocked()
}

// blocked asserts the output and the exit code of migrate check for a SidecarSet whose pods the switchover
// would upgrade.
func (s *scenario) blocked() {
	s.t.Helper()
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "cold"}}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"another"}}}`, v1alpha1.HashAnnotation)
	require.NoError(s.t, s.client.Patch(s.ctx, set, client.RawPatch(types.MergePatchType, patch)))
	cmd := exec.CommandContext(s.ctx, filepath.Join(bin, "outrigger"), "migrate", "check", "--kubeconfig="+s.cluster.Kubeconfig, "-o", "yaml")
	out, err := cmd.Output()
	var exit *exec.ExitError
	require.ErrorAs(s.t, err, &exit)
	assert.Equal(s.t, 1, exit.ExitCode())
	assert.Equal(s.t, "outrigger: not ready to switch: 1 blocker.\n", string(exit.Stderr))
	assert.Contains(s.t, string(out), "findings:\n- effect: blocks\n  message: 'Annotation kruise.io/sidecarset-hash is another, ")
}

// there switches the cluster to Outrigger with the commands of docs/migration.md.
func (s *scenario) there(kruise *openKruise) {
	s.t.Helper()
	s.documented(
		"kubectl get mutatingwebhookconfiguration kruise-mutating-webhook-configuration -o yaml | grep -v '^  resourceVersion:' > mutating.yaml",
		"kubectl get validatingwebhookconfiguration kruise-validating-webhook-configuration -o yaml | grep -v '^  resourceVersion:' > validating.yaml",
		"kubectl get crd sidecarsets.apps.kruise.io -o yaml | grep -v '^  resourceVersion:' > crd.yaml",
	)
	_, err := s.cluster.StartRole(s.ctx, cluster.Webhook)
	require.NoError(s.t, err)
	s.await("Outrigger to be called for pods", func() error {
		if slices.ContainsFunc(s.report().Answerers, func(a switchover.Answerer) bool { return a.Whose == "Outrigger" && a.About == "pods" }) {
			return nil
		}
		return errors.New("no webhook of Outrigger for pods")
	})
	commands := s.remedies()
	require.Len(s.t, commands, 2)
	s.documented("kubectl scale -n kruise-system deployment kruise-controller-manager --replicas=0")
	kruise.stopped.Store(true)
	for _, command := range commands {
		s.shell(command)
	}
	for _, role := range []string{cluster.Operator, cluster.Worker} {
		_, err := s.cluster.StartRole(s.ctx, role)
		require.NoError(s.t, err)
	}
	s.awaitComplete()
}

// awaitUnasked waits until API servers no longer call the webhook of Outrigger.
func (s *scenario) awaitUnasked() {
	s.t.Helper()
	s.await("Outrigger to be asked no more", func() error {
		before := s.requests()
		if err := s.injectedOnce(s.ctx); err != nil {
			return err
		}
		if after := s.requests(); after != before {
			return fmt.Errorf("it was asked: %s", after)
		}
		return nil
	})
}

// requests returns the metrics about requests to the webhook of Outrigger.
func (s *scenario) requests() string {
	s.t.Helper()
	for _, role := range s.cluster.Roles() {
		if role.Name != cluster.Webhook {
			continue
		}
		response, err := http.Get(role.Metrics) //nolint:gosec,noctx // a process of this test
		require.NoError(s.t, err)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		require.NoError(s.t, err)
		var lines []string
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, "outrigger_webhook_requests_total{") {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	return ""
}

// back switches the cluster back to OpenKruise with the commands of docs/migration.md.
func (s *scenario) back(kruise *openKruise) {
	s.t.Helper()
	for _, role := range []string{cluster.Operator, cluster.Worker} {
		require.NoError(s.t, s.cluster.Stop(role))
	}
	kruise.stopped.Store(false)
	s.documented(
		"kubectl scale -n kruise-system deployment kruise-controller-manager --replicas=1",
		"kubectl rollout status -n kruise-system deployment kruise-controller-manager",
		"kubectl replace -f mutating.yaml -f validating.yaml",
		"kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration outrigger",
	)
	s.awaitUnasked()
	require.NoError(s.t, s.cluster.Stop(cluster.Webhook))
	s.documented("kubectl replace -f crd.yaml")

	require.NoError(s.t, s.injectedOnce(s.ctx))
	beta := &unstructured.UnstructuredList{}
	beta.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SidecarSetList"))
	beta.SetAPIVersion("apps.kruise.io/v1beta1")
	s.await("both versions to be served", func() error { return s.client.List(s.ctx, beta) })
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "cold"}}
	require.NoError(s.t, s.client.Patch(s.ctx, set, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"edited":"yes"}}}`))))
}
