package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
)

// setFor returns a SidecarSet that selects the pods with one label.
func setFor(name, key, value string) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side-" + name, Image: "side:v1"}}}
	return set
}

// conditions is a control plane whose webhook runs with --match-conditions.
type conditions struct {
	t    *testing.T
	kube client.Client
}

// create creates a pod in a dry run, and returns the number of containers of the pod.
func (c *conditions) create(labels map[string]string) (int, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", GenerateName: "pod-", Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
	err := c.kube.Create(c.t.Context(), pod, client.DryRunAll)
	return len(pod.Spec.Containers), err
}

// awaitInjection waits until pods with labels are injected. The match condition selects the pods at once, and
// the webhook observes the SidecarSet with a delay.
func (c *conditions) awaitInjection(labels map[string]string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		n, err := c.create(labels)
		return err == nil && n == 2
	}, 3*time.Minute, 50*time.Millisecond)
}

func (c *conditions) configuration() *admissionregistrationv1.MutatingWebhookConfiguration {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	require.NoError(c.t, c.kube.Get(c.t.Context(), client.ObjectKey{Name: "outrigger"}, configuration))
	return configuration
}

// expression returns the expression of the match condition, or an empty string.
func (c *conditions) expression() string {
	for _, condition := range c.configuration().Webhooks[0].MatchConditions {
		if condition.Name == match.ConditionName {
			return condition.Expression
		}
	}
	return ""
}

// documented runs the command in docs/admission.md that begins with words, and returns the output.
func (c *conditions) documented(kubeconfig, words string) string {
	page, err := os.ReadFile("../../docs/admission.md")
	require.NoError(c.t, err)
	_, rest, found := strings.Cut(string(page), "\n"+words)
	require.True(c.t, found, words)
	line, _, _ := strings.Cut(rest, "\n")
	programs, err := filepath.Abs(bin)
	require.NoError(c.t, err)
	cmd := exec.CommandContext(c.t.Context(), "sh", "-c", words+line)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+programs+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "%s", out)
	return string(out)
}

// largestExpression returns an expression that uses most of the permitted bytes and operators.
func largestExpression(t *testing.T) string {
	var scopes []match.Scope
	for i := range 1500 {
		set := setFor("s", "app", fmt.Sprint("application-", i))
		if i < 60 {
			set.Spec.Selector.MatchLabels["tier"] = "web"
		}
		scope, err := match.NewScope(&set.Spec)
		require.NoError(t, err)
		scopes = append(scopes, scope)
	}
	condition := match.NewCondition(scopes...)
	require.False(t, condition.Everything())
	return condition.Expression()
}

func TestSpec4_16_MatchConditionsFollowTheSidecarSets(t *testing.T) {
	stackOf, direct := startControlPlane(t, admissionregistrationv1.AddToScheme)
	c := &conditions{t: t, kube: direct}
	ctx := t.Context()
	require.NoError(t, direct.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apps"}}))
	_, err := stackOf.StartRole(ctx, "webhook", "--match-conditions")
	require.NoError(t, err)
	require.Equal(t, "false", c.expression())

	require.NoError(t, stackOf.Stop("webhook"))
	n, err := c.create(map[string]string{"app": "a"})
	require.NoError(t, err, "without SidecarSets, no pod waits")
	assert.Equal(t, 1, n)
	require.NoError(t, stackOf.StartAgain(context.WithoutCancel(ctx), "webhook"))

	dry := setFor("dry", "app", "dry")
	require.NoError(t, direct.Create(ctx, dry, client.DryRunAll))
	require.Equal(t, "false", c.expression(), "a dry run has no side effects")

	largest := c.configuration()
	for i := range largest.Webhooks[0].MatchConditions {
		if one := &largest.Webhooks[0].MatchConditions[i]; one.Name == match.ConditionName {
			one.Expression = largestExpression(t)
		}
	}
	require.NoError(t, direct.Update(ctx, largest, client.DryRunAll), "the API server accepts the largest expression")

	require.NoError(t, direct.Create(ctx, setFor("a", "app", "a")))
	c.awaitInjection(map[string]string{"app": "a"})

	scoped := setFor("b", "app", "b")
	scoped.Spec.Namespace = "apps"
	scoped.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{
		{Key: "tier", Operator: "In", Values: []string{"web", "a.b_c"}}, {Key: "zone", Operator: "NotIn", Values: []string{"x"}},
		{Key: "example.com/on", Operator: "Exists"}, {Key: "off", Operator: "DoesNotExist"},
	}
	require.NoError(t, direct.Create(ctx, scoped), "the API server compiles the expression")
	selected := map[string]string{"app": "b", "tier": "a.b_c", "example.com/on": ""}
	c.awaitInjection(selected)

	// The match condition also contains an updated selector immediately.
	moved := &v1alpha1.SidecarSet{}
	require.NoError(t, direct.Get(ctx, client.ObjectKey{Name: "a"}, moved))
	moved.Spec.Selector.MatchLabels["app"] = "moved"
	require.NoError(t, direct.Update(ctx, moved))
	c.awaitInjection(map[string]string{"app": "moved"})

	require.NoError(t, stackOf.Stop("webhook"))
	for _, labels := range []map[string]string{nil, {"app": "c"}, {"app": "b", "tier": "web", "example.com/on": "", "off": ""}} {
		_, err = c.create(labels)
		require.NoError(t, err, "%v: no SidecarSet selects it", labels)
	}
	for _, labels := range []map[string]string{{"app": "moved"}, selected} {
		_, err = c.create(labels)
		require.ErrorContains(t, err, "failed calling webhook", "%v", labels)
	}
	followed := c.configuration()
	require.NoError(t, stackOf.InstallWebhooks(ctx, "https://localhost:1"))
	require.Equal(t, followed.Webhooks[0].MatchConditions, c.configuration().Webhooks[0].MatchConditions, "applying the manifests keeps the condition")
	assert.Contains(t, c.documented(stackOf.Kubeconfig, "kubectl get mutatingwebhookconfiguration"), match.ConditionName)
	c.documented(stackOf.Kubeconfig, "kubectl patch mutatingwebhookconfiguration outrigger -p '{\"webhooks\": [{")
	require.Empty(t, c.expression(), "removed by hand")
	require.Eventually(t, func() bool {
		_, err := c.create(nil)
		return err != nil && strings.Contains(err.Error(), "failed calling webhook")
	}, 3*time.Minute, 50*time.Millisecond, "without the condition, every pod waits")
	removed := c.configuration()
	restored := removed.DeepCopy()
	restored.Webhooks[0].MatchConditions = followed.Webhooks[0].MatchConditions
	require.NoError(t, direct.Patch(ctx, restored, client.MergeFrom(removed)))

	_, err = stackOf.StartRole(ctx, "webhook-without")
	require.NoError(t, err)
	assert.Empty(t, c.expression(), "the flag is off")
	assert.NotContains(t, c.configuration().Annotations, "outrigger.io/match-conditions-widened")
	c.awaitInjection(map[string]string{"app": "moved"})
}
