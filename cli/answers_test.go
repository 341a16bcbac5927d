package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/fixture"
)

func manifest(t *testing.T, set *v1alpha1.SidecarSet) string {
	t.Helper()
	whole := set.DeepCopy()
	whole.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SidecarSet"}
	data, err := yaml.Marshal(whole)
	require.NoError(t, err)
	return string(data)
}

func TestEachCommandWritesJSONAndYAML(t *testing.T) {
	s, set, _ := fourRevisionsCluster(t)
	pod := injectedPod(t, set, "old", "before")
	require.NoError(t, s.Create(t.Context(), pod))
	require.NoError(t, s.Create(t.Context(), namespace("default")))
	for _, command := range []string{
		"list", "list --outdated", "list --missing", "status logs", "plan logs --image agent=agent:v9", "why pod/old", "why sidecarset/logs",
		"history logs", "diff logs 1", "diff logs 1 2", "undo logs --dry-run=client", "undo logs --to-revision=4", "undo logs", "version",
		"get", "get logs", "set image logs agent=agent:v9",
	} {
		read[any](t, s.shows(append(strings.Fields(command), "-o", "json")...))
		asYAML := s.shows(append(strings.Fields(command), "-o", "yaml")...)
		require.NoError(t, yaml.Unmarshal([]byte(asYAML), new(any)), "%s: %s", command, asYAML)
	}
	assert.Equal(t, "[]", strings.TrimSpace(newTestCluster(t).shows("list", "-o", "json")))
	assert.Equal(t, "[]", strings.TrimSpace(newTestCluster(t).shows("list", "--outdated", "-o", "json")))
}

func TestInvalidArgumentsAreRejected(t *testing.T) {
	s, set, _ := fourRevisionsCluster(t)
	require.NoError(t, s.Create(t.Context(), namespace("default")))
	for want, args := range map[string][]string{
		`name a SidecarSet`:                                                                                   {"status", ""},
		`name a SidecarSet: "sidecarset/" has none`:                                                           {"status", "sidecarset/"},
		`name a pod or a SidecarSet: "pod/" has none`:                                                         {"why", "pod/"},
		`name a pod or a SidecarSet: "///" has none`:                                                          {"why", "///"},
		`there is no pod x/y in namespace default`:                                                            {"why", "default/x/y"},
		`--timeout must be positive`:                                                                          {"status", "logs", "-w", "--timeout=-1s"},
		`--runs must be positive`:                                                                             {"history", "logs", "--runs=0"},
		`--image "agent": use CONTAINER=IMAGE`:                                                                {"plan", "logs", "--image=agent"},
		`has no container "nobody"; it has agent`:                                                             {"plan", "logs", "--image=nobody=x"},
		`--image "agent=AGENT": the repository AGENT of the image contains upper-case letters`:                {"plan", "logs", "--image=agent=AGENT"},
		`--runs "x": use a whole number (see kubectl sidecarset history --help)`:                              {"history", "logs", "--runs=x"},
		`--step "canary": use a whole number (see kubectl sidecarset approve --help)`:                         {"approve", "logs", "--step=canary"},
		`the document is empty: give the manifest of a SidecarSet`:                                            {"plan", "-f", "-"},
		`--for must be positive, for example 2h`:                                                              {"freeze", "x", "--all", "--for=0s"},
		`--until "" is not a time such as`:                                                                    {"freeze", "x", "--all", "--until="},
		`--via-cluster is for one SidecarSet: leave out --via-cluster, or name a SidecarSet instead of --all`: {"pause", "--all", "--via-cluster"},
		`--temporal-ui-url "notaurl" is not a URL such as https://temporal.example.com`:                       {"open", "logs", "--temporal-ui-url=notaurl", "--print"},
		`get without NAME is list, which has no flag --timeout: name a SidecarSet, or leave out the flag`:     {"get", "--timeout=1s"},
		`get NAME is status, which has no flag --missing: leave out NAME or the flag`:                         {"get", "logs", "--missing"},
		`"pod/logs" is not a SidecarSet: use NAME or sidecarset/NAME`:                                         {"status", "pod/logs"},
		`"sidecarset/logs/x" is not a SidecarSet: use NAME or sidecarset/NAME`:                                {"pause", "sidecarset/logs/x"},
		`has no revision ""`: {"diff", "logs", ""},
		`unknown flag: --timout (did you mean --timeout? see kubectl sidecarset status --help)`:                                                 {"status", "logs", "--timout=5m"},
		`unknown flag: --output (see kubectl sidecarset open --help)`:                                                                           {"open", "logs", "--output=json"},
		`kubectl sidecarset has no command "describe" (did you mean status? see kubectl sidecarset --help)`:                                     {"describe", "logs"},
		`kubectl sidecarset has no command "rollback" (did you mean undo? see kubectl sidecarset --help)`:                                       {"rollback", "logs"},
		`kubectl sidecarset has no command "frobnicate" (see kubectl sidecarset --help)`:                                                        {"frobnicate"},
		`kubectl sidecarset set has no command "imag" (did you mean image? see kubectl sidecarset set --help)`:                                  {"set", "imag", "logs"},
		`missing unit in duration "5": use a duration such as 90s, 5m or 1h30m (see kubectl sidecarset status --help)`:                          {"status", "logs", "-w", "--timeout=5"},
		`unknown unit "x" in duration "5x": use a duration such as 90s, 5m or 1h30m (see kubectl sidecarset status --help)`:                     {"status", "logs", "-w", "--timeout=5x"},
		`invalid duration "abc": use a duration such as 90s, 5m or 1h30m (see kubectl sidecarset status --help)`:                                {"status", "logs", "-w", "--timeout=abc"},
		`unknown unit "d" in duration "1d": use a duration such as 90s, 5m or 1h30m (see kubectl sidecarset freeze --help)`:                     {"freeze", "--for=1d"},
		`found '=', expected: identifier: use labels such as tier=edge, or "tier in (edge, core)"`:                                              {"freeze", "x", "--selector=a==="},
		`kubectl sidecarset completion has no command "foo" (see kubectl sidecarset completion --help)`:                                         {"completion", "foo"},
		`deployment/web is neither a pod nor a SidecarSet: use pod/NAME, NAMESPACE/POD or sidecarset/NAME (kubectl get pods)`:                   {"why", "deployment/web"},
		`there is no pod nope in namespace default: use -n or NAMESPACE/POD`:                                                                    {"why", "pod/nope"},
		`there is neither a SidecarSet "log" nor such a pod in namespace default (-n); SidecarSets: logs`:                                       {"why", "log"},
		`namespace nowhere does not exist: name another one with -n (kubectl get namespaces)`:                                                   {"list", "--outdated", "-n", "nowhere"},
		`there is no SidecarSet "web", and namespace nope does not exist: name another one with -n (kubectl get namespaces); SidecarSets: logs`: {"why", "web", "-n", "nope"},
		`there is no pod web: namespace nope does not exist: name another one with -n (kubectl get namespaces)`:                                 {"why", "pod/web", "-n", "nope"},
		`there is no pod web: namespace other does not exist: use pod/NAME, NAMESPACE/POD or sidecarset/NAME (kubectl get namespaces)`:          {"why", "other/web"},
		`--to-revision: give a number, a name or a custom v`:                                                                                    {"undo", "logs", "--to-revision="},
	} {
		got := s.run(args...)
		require.ErrorContains(t, got.err, want, "%v: %s", args, got.out)
	}
	assert.Contains(t, s.shows("diff", "logs", "1", "1"), "have the same content")
	two := manifest(t, set) + "---\n" + manifest(t, set)
	require.ErrorContains(t, s.runWith(two, "plan", "-f", "-").err, "in -: it holds several documents: give one SidecarSet")
	unnamed := set.DeepCopy()
	unnamed.Name = ""
	require.ErrorContains(t, s.runWith(manifest(t, unnamed), "plan", "-f", "-").err, "-: the SidecarSet has no metadata.name")
	require.NoError(t, s.runWith("---\n"+manifest(t, set)+"---\n# the end\n", "plan", "-f", "-").err)
}

func TestWithoutAPlanTheCausesOfARejectionAreNamed(t *testing.T) {
	set := sidecarSet(t, "logs")
	s := newTestCluster(t, set)
	for _, change := range []func(*v1alpha1.SidecarSet){
		func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromString("few")) },
		func(s *v1alpha1.SidecarSet) { s.Spec.Selector.MatchLabels["app"] = "!" },
	} {
		wanted := set.DeepCopy()
		change(wanted)
		got := s.runWith(manifest(t, wanted), "plan", "-f", "-")
		require.ErrorContains(t, got.err, "admission rejects this SidecarSet: spec.", got.out)
	}
}

func TestPodsThatRolloutsLeaveOutAreOutdated(t *testing.T) {
	set := sidecarSet(t, "logs", func(s *v1alpha1.SidecarSet) {
		s.Spec.Containers = append(s.Spec.Containers, fixture.Sidecar("second"))
	})
	broken := injectedPod(t, set, "broken", "before")
	broken.Annotations[v1alpha1.HashAnnotation] = "{"
	elsewhere := injectedPod(t, set, "elsewhere", "before")
	elsewhere.Labels["app"] = "other"
	s := newTestCluster(t, set, broken, elsewhere)
	assert.Contains(t, s.shows("why", "sidecarset/logs"), "\n  default/broken is not managed: its annotations cannot be read: annotation "+v1alpha1.HashAnnotation)
	require.NoError(t, s.Create(t.Context(), injectedPod(t, set, "shorter", "before")))
	phases := map[string]view.PodPhase{}
	for _, one := range read[[]view.BehindPod](t, s.shows("list", "--outdated", "-o", "json")) {
		phases[one.Name] = one.Phase
	}
	assert.Equal(t, map[string]view.PodPhase{"broken": view.PodUnreadable, "shorter": view.PodNotUpgradable}, phases)
	why := s.shows("why", "sidecarset/logs")
	assert.Contains(t, why, "2 pods are not managed, such as default/broken: ")
	assert.NotContains(t, why, "no pod is injected with this SidecarSet")
}

// Gatekeeper, and webhooks of controller-runtime, deny requests with status 403.
func TestADenialByAdmissionNamesNoRole(t *testing.T) {
	sets := schema.GroupResource{Group: "apps.kruise.io", Resource: "sidecarsets"}
	denied := explain(apierrors.NewForbidden(sets, "logs", errors.New("the registry is not allowed")), "patch SidecarSet logs")
	require.EqualError(t, denied, `patch SidecarSet logs: not allowed: sidecarsets.apps.kruise.io "logs" is forbidden: the registry is not allowed`)
	denied = explain(apierrors.NewForbidden(sets, "logs", errors.New(`User "ann" cannot patch resource "sidecarsets"`)), "patch SidecarSet logs")
	require.ErrorContains(t, denied, "; ask for a role that grants that verb on that resource")
}
