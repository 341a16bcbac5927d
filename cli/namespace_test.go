package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
)

func namespace(name string, change ...func(*corev1.Namespace)) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
	for _, one := range change {
		one(n)
	}
	return n
}

func TestListsOfPodsAreLimitedToTheNamespace(t *testing.T) {
	set := sidecarSet(t, "logs")
	shopOnly := sidecarSet(t, "shop-only", func(s *v1alpha1.SidecarSet) { s.Spec.Namespace = "shop" })
	old := injectedPod(t, set, "old", "before")
	old.Namespace = "shop"
	s := newTestCluster(t, set, shopOnly, namespace("shop"), namespace("bank"), old, injectedPod(t, set, "old", "before"), plainPod("shop", "plain"), plainPod("bank", "plain"))
	pods := func(args ...string) []string {
		var found []string
		for _, one := range read[[]view.BehindPod](t, s.shows(append([]string{"list", "-o", "json"}, args...)...)) {
			found = append(found, one.Namespace+"/"+one.Name+" "+one.Set)
		}
		return found
	}
	everything := []string{"default/old logs", "shop/old logs", "bank/plain logs", "shop/plain logs", "shop/old shop-only", "shop/plain shop-only"}
	assert.Equal(t, everything, pods("--outdated", "--missing"))
	assert.Equal(t, everything, pods("--outdated", "--missing", "-A"))
	assert.Equal(t, everything, pods("--outdated", "--missing", "-n", "shop", "-A"))
	assert.Equal(t, []string{"bank/plain logs"}, pods("--missing", "-n", "bank"))
	assert.Equal(t, []string{"shop/old logs"}, pods("--outdated", "-n", "shop"))
	assert.Empty(t, pods("--outdated", "-n", "bank"))
}

func TestANamespaceIsRejectedByCommandsAboutSidecarSets(t *testing.T) {
	s := newTestCluster(t, sidecarSet(t, "logs"))
	require.EqualError(t, s.run("list", "-n", "shop").err, "--namespace needs --outdated or --missing: SidecarSets are in no namespace")
	everywhere := s.run("list", "-A")
	require.NoError(t, everywhere.err)
	assert.Equal(t, s.shows("list"), everywhere.out)
	assert.Equal(t, "Note: --all-namespaces has no effect without --outdated or --missing: SidecarSets are in no namespace\n", everywhere.errOut)
	for _, args := range [][]string{
		{"status", "logs"}, {"plan", "logs"}, {"history", "logs"}, {"diff", "logs", "1"}, {"undo", "logs"}, {"pause", "logs"}, {"resume", "logs"}, {"approve", "logs"}, {"promote", "logs"}, {"open", "logs"}, {"restart", "logs"},
	} {
		require.EqualError(t, s.run(append(args, "--namespace=shop")...).err, "remove --namespace: "+args[0]+" is about the pods of the SidecarSet in all namespaces", "%v", args)
	}
}
