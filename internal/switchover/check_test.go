package switchover

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/revision"
)

// stored returns a SidecarSet in the form that is stored after admission.
func stored(t *testing.T, name string, changes ...func(*v1alpha1.SidecarSet)) v1alpha1.SidecarSet {
	t.Helper()
	set := fixture.SidecarSet(name, fixture.Sidecar(name))
	for _, change := range changes {
		change(set)
	}
	require.NoError(t, revision.Complete(set, nil))
	return *set
}

func hot(set *v1alpha1.SidecarSet) {
	set.Spec.Containers[0].UpgradeStrategy = v1alpha1.SidecarContainerUpgradeStrategy{UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: "empty:1"}
}

func paused(set *v1alpha1.SidecarSet) { set.Spec.UpdateStrategy.Paused = true }

// injected returns a pod with the newest version of the SidecarSet.
func injected(t *testing.T, set v1alpha1.SidecarSet, changes ...func(*corev1.Pod)) corev1.Pod {
	t.Helper()
	pod := fixture.Pod(fixture.Container("app"), set.Spec.Containers[0].Container)
	pod.Annotations = map[string]string{v1alpha1.InjectedListAnnotation: set.Name}
	if side := &set.Spec.Containers[0]; side.UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade {
		pod.Spec.Containers = []corev1.Container{{Name: side.Name + "-1", Image: side.Image}, {Name: side.Name + "-2", Image: "empty:1"}}
		pod.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation] = `{"` + side.Name + `":"` + side.Name + `-1"}`
	}
	for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation} {
		value, err := record.Format(record.Entries{set.Name: {Hash: set.Annotations[key], SidecarSetName: set.Name}})
		require.NoError(t, err)
		pod.Annotations[key] = value
	}
	for _, change := range changes {
		change(pod)
	}
	return *pod
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[key] = value }
}

func rule(group, resource string, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{Operations: operations, Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, Resources: []string{resource}}}}
}

// mutatingAs returns a configuration with webhooks for pods and SidecarSets.
func mutatingAs(configuration, pods, sets string) admissionregistrationv1.MutatingWebhookConfiguration {
	return admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: configuration},
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "mcloneset.kb.io", Rules: rule("apps.kruise.io", "clonesets", "*"), ClientConfig: serviceOf(configuration)},
			{Name: pods, Rules: rule("", "pods", "CREATE"), ClientConfig: serviceOf(configuration)},
			{Name: sets, Rules: rule("apps.kruise.io", "sidecarsets", "CREATE", "UPDATE"), ClientConfig: serviceOf(configuration)},
		},
	}
}

func serviceOf(configuration string) admissionregistrationv1.WebhookClientConfig {
	if strings.Contains(configuration, "outrigger") {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "outrigger-webhook"}}
	}
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "kruise-webhook-service"}}
}

func validatingAs(configuration, sets string) admissionregistrationv1.ValidatingWebhookConfiguration {
	return admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: configuration},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: sets, Rules: rule("apps.kruise.io", "sidecarsets", "*"), ClientConfig: serviceOf(configuration)}},
	}
}

func manager(replicas int32, args ...string) appsv1.Deployment {
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: kruiseManager}}
	d.Spec.Replicas = &replicas
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: "openkruise/kruise-manager:v1.9.0", Args: args}}
	return d
}

// served returns the facts of a cluster with OpenKruise.
func served(sets ...v1alpha1.SidecarSet) Facts {
	return Facts{
		Sets:        sets,
		Namespaces:  map[string]map[string]string{"default": nil},
		Mutating:    []admissionregistrationv1.MutatingWebhookConfiguration{mutatingAs("kruise-mutating-webhook-configuration", "mpod.kb.io", "msidecarset.kb.io")},
		Validating:  []admissionregistrationv1.ValidatingWebhookConfiguration{validatingAs("kruise-validating-webhook-configuration", "vsidecarset.kb.io")},
		Deployments: []appsv1.Deployment{manager(1)},
		Webhook:     match.NewWebhook(nil, "kruise-system"),
	}
}

func checked(facts Facts, pods ...corev1.Pod) *Report {
	check := New(facts)
	check.Add(pods)
	return check.Report()
}

// about returns the findings of a topic, in the form <effect> <object>: <message>.
func (r *Report) about(topic string) (found []string) {
	for _, f := range r.Findings {
		if f.Topic == topic {
			found = append(found, strings.TrimSpace(string(f.Effect)+" "+f.Object)+": "+f.Message)
		}
	}
	return found
}

func TestAnOrdinarySwitchoverHasNoBlockers(t *testing.T) {
	cold, twins := stored(t, "cold"), stored(t, "twins", hot)
	report := checked(served(cold, twins), injected(t, cold), injected(t, twins), *fixture.Pod())
	assert.Zero(t, report.Blocked(), report.Findings)
	assert.Equal(t, []int{2, 2, 2, 2}, []int{report.Sets, report.Pods, report.Matched, report.Updated})
	assert.False(t, slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Effect != Note }), report.Findings)
	assert.Len(t, report.Answerers, 3)
}

func TestHashesThatTheNextWriteChanges(t *testing.T) {
	other, none := stored(t, "other"), stored(t, "none")
	other.Annotations[v1alpha1.HashAnnotation] = "theirs"
	pod := injected(t, other)
	delete(none.Annotations, v1alpha1.HashWithoutImageAnnotation)
	report := checked(served(other, none), pod, injected(t, none))
	found := report.about("hash")
	require.Len(t, found, 2)
	assert.Contains(t, found[0], "blocks SidecarSet/none: It has no annotation kruise.io/sidecarset-hash-without-image")
	hash, err := revision.Hash(&other.Spec)
	require.NoError(t, err)
	assert.Contains(t, found[1], "blocks SidecarSet/other: Annotation kruise.io/sidecarset-hash is theirs, and the next write of the SidecarSet makes it "+hash+": its 1 matched pods")
}

// kubectl edit changes the stored containers. kubectl apply sends all containers of the manifest.
func TestAnImageChangeOfEverySetIsTried(t *testing.T) {
	manifest := fixture.SidecarSet("cold", fixture.Sidecar("cold", func(c *v1alpha1.SidecarContainer) {
		c.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}, SuccessThreshold: 1}
	}))
	cold := stored(t, "cold", func(s *v1alpha1.SidecarSet) {
		s.Spec = *manifest.Spec.DeepCopy()
		applied, err := json.Marshal(manifest)
		require.NoError(t, err)
		s.Annotations[corev1.LastAppliedConfigAnnotation] = string(applied)
	})
	assert.Empty(t, checked(served(cold), injected(t, cold)).about("image change"))

	edited := *cold.DeepCopy()
	edited.Spec.Containers[0].StartupProbe.TimeoutSeconds = 5
	require.NoError(t, revision.Complete(&edited, nil))
	found := checked(served(edited), injected(t, edited)).about("image change")
	require.Len(t, found, 1)
	assert.Contains(t, found[0], "differs SidecarSet/cold: 1 pod, such as default/p: the last manifest of kubectl apply")

	older := *cold.DeepCopy()
	older.Spec.Containers[0].TerminationMessagePath = "" // the hash was computed without this field
	require.NoError(t, revision.WriteHashes(&older))
	found = checked(served(older), injected(t, older)).about("image change")
	require.Len(t, found, 1)
	assert.Contains(t, found[0], "blocks SidecarSet/cold: 1 pod, such as default/p: an image change cannot upgrade it")
}

func TestProblemsOfPods(t *testing.T) {
	cold, twins := stored(t, "cold"), stored(t, "twins", hot)
	older := `{"cold":"` + cold.Annotations[v1alpha1.HashAnnotation] + `"}`
	const working = v1alpha1.WorkingHotUpgradeContainerAnnotation
	for want, pod := range map[string]corev1.Pod{
		"blocks SidecarSet/cold: 1 pod, such as default/p (annotation kruise.io/sidecarset-hash: ": injected(t, cold, annotated(v1alpha1.HashAnnotation, "{")),
		"note SidecarSet/cold: 1 pod, such as default/p: the annotation has the older form":        injected(t, cold, annotated(v1alpha1.HashAnnotation, older)),
		"blocks SidecarSet/twins: 1 pod, such as default/p (twins has no entry)":                   injected(t, twins, annotated(working, "{}")),
		"blocks SidecarSet/twins: 1 pod, such as default/p (\"x\" is not a twin of twins)":         injected(t, twins, annotated(working, `{"twins":"x"}`)),
		"blocks SidecarSet/twins: 1 pod, such as default/p (twins-2 holds the empty image)":        injected(t, twins, annotated(working, `{"twins":"twins-2"}`)),
		"differs SidecarSet/twins: 1 pod, such as default/p: the standby twin of a hot upgrade": injected(t, twins, annotated("version.sidecarset.kruise.io/twins-2", "7"), func(p *corev1.Pod) {
			p.Spec.Containers[1].Image = "twins:v0"
		}),
		"differs SidecarSet/cold: 1 pod, such as default/p: more than images differ":                injected(t, cold, annotated(v1alpha1.HashAnnotation, `{}`), annotated(v1alpha1.HashWithoutImageAnnotation, `{}`)),
		"differs SidecarSet/cold: 1 pod, such as default/p: an older version of the SidecarSet":     injected(t, cold, annotated(v1alpha1.HashAnnotation, `{"cold":{"hash":"before","sidecarSetName":"cold"}}`)),
		"note SidecarSet/cold: 1 pod, such as default/p: a container of the SidecarSet is missing.": injected(t, cold, func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }),
		"note SidecarSet/cold: 1 pod, such as default/p: the last upgrade is in progress":           injected(t, cold, annotated(v1alpha1.InPlaceUpdateStateAnnotation, `{"cold":{"revision":"r","updateTimestamp":null,"lastContainerStatuses":{}}}`)),
	} {
		report := checked(served(cold, twins), pod)
		found := slices.Concat(report.about("annotations"), report.about("hot upgrade"), report.about("not upgradable"), report.about("rollout"), report.about("pods"))
		require.Len(t, found, 1, want)
		assert.Contains(t, found[0], want)
	}
	gone := injected(t, cold, annotated(v1alpha1.HashAnnotation, "{"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	elsewhere := injected(t, cold, annotated(v1alpha1.HashAnnotation, "{"), func(p *corev1.Pod) { p.Labels = nil })
	assert.Zero(t, checked(served(cold), gone, elsewhere).Blocked(), "pods that no set matches are nobody's")
	pausedSet := stored(t, "cold", paused)
	outdated := injected(t, pausedSet, annotated(v1alpha1.HashAnnotation, `{"cold":{"hash":"before","sidecarSetName":"cold"}}`))
	report := checked(served(pausedSet), outdated)
	assert.Contains(t, report.about("rollout")[0], "note SidecarSet/cold: 1 pod", "nothing is upgraded while the set is paused")
	assert.Len(t, report.about("paused"), 1)
}

func TestSpec4_13_InjectedPodsThatTheWebhookOfOutriggerIsNotCalledFor(t *testing.T) {
	cold := stored(t, "cold")
	facts := served(cold)
	facts.Namespaces["rook-ceph"] = map[string]string{corev1.LabelMetadataName: "rook-ceph"}
	facts.Webhook = match.NewWebhook(&admissionregistrationv1.MutatingWebhook{
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"rook-ceph"}},
		}},
	}, "kruise-system")
	in := func(namespace string, changes ...func(*corev1.Pod)) corev1.Pod {
		return injected(t, cold, append(changes, func(pod *corev1.Pod) { pod.Namespace = namespace })...)
	}
	critical := func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "system-node-critical" }
	ended := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }

	report := checked(facts, in("default"), in("default", critical), in("kube-system"), in("kube-system", critical), in("rook-ceph"), in("rook-ceph", ended))
	require.Len(t, report.about("excluded pods"), 1)
	assert.Contains(t, report.about("excluded pods")[0], "differs SidecarSet/cold: 2 pods, such as kube-system/p: API servers do not call the webhook of Outrigger")
	assert.Equal(t, 5, report.Matched, "Outrigger upgrades these pods in place")

	facts.Sets[0].Spec.InjectionStrategy.Paused = true
	assert.Empty(t, checked(facts, in("rook-ceph")).about("excluded pods"), "OpenKruise does not inject a recreated pod either")
}

// A switchover to OpenKruise in the middle of a step would upgrade all remaining pods.
func TestStepsThatHaveNotEnded(t *testing.T) {
	inStep := func(set *v1alpha1.SidecarSet) {
		set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: set.Generation, Policy: "canary", Stage: &v1alpha1.RolloutStage{Step: 2, Steps: 3}}
	}
	old := annotated(v1alpha1.HashAnnotation, `{"cold":{"hash":"before","sidecarSetName":"cold"}}`)
	for name, c := range map[string]struct {
		change  func(*v1alpha1.SidecarSet)
		updated bool
		found   bool
	}{
		"in a step":   {found: true},
		"steps ended": {change: func(s *v1alpha1.SidecarSet) { s.Status.Rollout.Stage.Done = true }},
		"steps of an earlier generation ended": {change: func(s *v1alpha1.SidecarSet) {
			s.Status.Rollout.Stage.Done, s.Generation = true, 2
		}, found: true},
		"no policy":        {change: func(s *v1alpha1.SidecarSet) { s.Status.Rollout.Stage = nil }},
		"no rollout":       {change: func(s *v1alpha1.SidecarSet) { s.Status.Rollout = nil }},
		"all pods updated": {updated: true},
		"paused":           {change: paused},
		"the partition keeps the pods": {change: func(s *v1alpha1.SidecarSet) {
			s.Spec.UpdateStrategy.Partition = &intstr.IntOrString{IntVal: 1}
		}},
		"the partition keeps too few pods": {change: func(s *v1alpha1.SidecarSet) {
			s.Spec.UpdateStrategy.Partition = &intstr.IntOrString{}
		}, found: true},
	} {
		t.Run(name, func(t *testing.T) {
			cold := stored(t, "cold", inStep)
			if c.change != nil {
				c.change(&cold)
			}
			pod := injected(t, cold, old)
			if c.updated {
				pod = injected(t, cold)
			}
			report := checked(served(cold), pod)
			assert.Zero(t, report.Blocked(), "a switchover to Outrigger continues the steps")
			if !c.found {
				assert.Empty(t, report.about("steps"))
				return
			}
			assert.Equal(t, []string{"differs SidecarSet/cold: The steps of RolloutPolicy canary have not ended. OpenKruise has no steps, and would upgrade " +
				"the remaining 1 pod. Before you start OpenKruise, end all steps, or set spec.updateStrategy.paused or a partition."}, report.about("steps"))
			at := slices.IndexFunc(report.Findings, func(f Finding) bool { return f.Topic == "steps" })
			assert.Equal(t, "kubectl sidecarset promote cold --full", report.Findings[at].Remedy)
		})
	}
}

func TestARolloutThatWasRolledBack(t *testing.T) {
	cold := stored(t, "cold")
	cold.Status.Rollout = &v1alpha1.RolloutStatus{
		Generation: cold.Generation, Stage: &v1alpha1.RolloutStage{Step: 1, Done: true},
		Quarantine: &v1alpha1.RolloutQuarantine{Hash: cold.Annotations[v1alpha1.HashAnnotation], Revision: "cold-1"},
	}
	pod := injected(t, cold, annotated(v1alpha1.HashAnnotation, `{"cold":{"hash":"before","sidecarSetName":"cold"}}`))
	assert.Equal(t, []string{"differs SidecarSet/cold: The rollout failed and was rolled back to revision cold-1. OpenKruise would upgrade 1 pod to the failed content. " +
		"Before you start OpenKruise, apply the earlier content, or set spec.updateStrategy.paused."}, checked(served(cold), pod).about("steps"))
	cold.Status.Rollout.Quarantine.Hash = "another"
	assert.Empty(t, checked(served(cold), pod).about("steps"), "other content is not quarantined")
}

func TestAHeldRollout(t *testing.T) {
	cold := stored(t, "cold")
	cold.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFrozen, Message: "frozen by RolloutFreeze sales; 0 of 1 pods updated",
	}}
	pod := injected(t, cold, annotated(v1alpha1.HashAnnotation, `{"cold":{"hash":"before","sidecarSetName":"cold"}}`))
	for _, reason := range []string{v1alpha1.ReasonFrozen, v1alpha1.ReasonOutsideWindow, v1alpha1.ReasonAwaitingPermit} {
		cold.Status.Conditions[0].Reason = reason
		assert.Equal(t, []string{"differs SidecarSet/cold: The rollout is held: frozen by RolloutFreeze sales; 0 of 1 pods updated. OpenKruise has no freezes, windows and fleets, " +
			"and would upgrade the remaining 1 pod. Before you start OpenKruise, set spec.updateStrategy.paused or a partition."}, checked(served(cold), pod).about("steps"))
	}
	cold.Status.Conditions[0].Reason = v1alpha1.ReasonRolloutComplete
	assert.Empty(t, checked(served(cold), pod).about("steps"))
}

// OpenKruise supports only the pause in the spec.
func TestARolloutThatIsPausedBySignal(t *testing.T) {
	cold := stored(t, "cold")
	cold.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann", Reason: "incident"}}
	pod := injected(t, cold, annotated(v1alpha1.HashAnnotation, `{"cold":{"hash":"before","sidecarSetName":"cold"}}`))
	report := checked(served(cold), pod)
	assert.Equal(t, []string{"differs SidecarSet/cold: The rollout is paused by signal from ann: incident. OpenKruise does not know this pause, " +
		"and would upgrade the remaining 1 pod. Before you start OpenKruise, set spec.updateStrategy.paused or a partition."}, report.about("steps"))
	cold.Spec.UpdateStrategy.Paused = true
	assert.Empty(t, checked(served(cold), pod).about("steps"))
}

func TestSidecarSetsThatBreakRulesForNewOnes(t *testing.T) {
	one := stored(t, "one", func(s *v1alpha1.SidecarSet) {
		s.Spec.UpdateStrategy.MaxUnavailable = &intstr.IntOrString{Type: intstr.String, StrVal: "5"}
	})
	same := stored(t, "same", func(s *v1alpha1.SidecarSet) { s.Spec.Containers[0].Name = "one" })
	report := checked(served(one, same))
	found := strings.Join(report.about("rules"), "\n")
	assert.Contains(t, found, "differs SidecarSet/one: spec.updateStrategy.maxUnavailable: ")
	assert.Contains(t, found, "differs SidecarSet/one: spec.containers[0].name: Invalid value: \"one\": SidecarSet same injects a container of this name")
	assert.Contains(t, found, "differs SidecarSet/same: ")
	assert.Zero(t, report.Blocked(), "what is stored stays")
}

func TestNativeSidecarsAreNotUpgraded(t *testing.T) {
	report := checked(served(stored(t, "set", func(s *v1alpha1.SidecarSet) {
		native := fixture.Sidecar("native")
		native.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		s.Spec.InitContainers = append(s.Spec.InitContainers, fixture.Sidecar("init"), native)
		s.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
		s.Spec.InjectionStrategy.Paused = true
	})))
	assert.Equal(t, []string{"note SidecarSet/set: Init container native is a native sidecar: Outrigger upgrades it in place."}, report.about("native sidecar"))
	assert.Equal(t, []string{"note SidecarSet/set: Its injection is paused, and stays so."}, report.about("paused"))
	assert.Empty(t, report.about("rules"))
}

func TestPinsToNothing(t *testing.T) {
	pin := func(name string) func(*v1alpha1.SidecarSet) {
		return func(s *v1alpha1.SidecarSet) {
			s.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: &name, Policy: v1alpha1.PartialSidecarSetInjectRevisionPolicy}
		}
	}
	set := stored(t, "set")
	built, err := revision.New(&set, "kruise-system", 1)
	require.NoError(t, err)
	for name, want := range map[string]string{built.Name: "differs SidecarSet/set: Policy Partial", "gone": "blocks SidecarSet/set: "} {
		facts := served(stored(t, "set", pin(name)))
		facts.Revisions = []appsv1.ControllerRevision{*built}
		report := checked(facts)
		require.Len(t, report.about("pin"), 1)
		assert.Contains(t, report.about("pin")[0], want)
		assert.Empty(t, report.about("rules"), "a pin is named once")
	}
}

func TestTheFeatureGateDisablesTheWhitelist(t *testing.T) {
	set := stored(t, "set", func(s *v1alpha1.SidecarSet) {
		s.Spec.PatchPodMetadata = []v1alpha1.SidecarSetPatchPodMetadata{{Annotations: map[string]string{"a": "b"}, PatchPolicy: v1alpha1.SidecarSetRetainPatchPolicy}}
	})
	facts := served(set)
	assert.Contains(t, checked(facts).about("rules")[0], "differs SidecarSet/set: spec.patchPodMetadata[0].annotations[a]")
	facts.Whitelist = `{"rules":[{"allowedAnnotationKeyExprs":["^a$"]}]}`
	assert.Zero(t, len(checked(facts).about("rules")))
	facts.Whitelist = "{"
	assert.Contains(t, checked(facts).about("whitelist")[0], "blocks ConfigMap/kruise-configuration: ")

	facts.Whitelist = ""
	facts.Deployments = []appsv1.Deployment{manager(1, "--leader-election", "--feature-gates", "PodWebhook=true,AllAlpha=true, SidecarSetPatchPodMetadataDefaultsAllowed=true")}
	found := checked(facts).about("feature gate")
	require.Len(t, found, 3)
	assert.Contains(t, found[0], "blocks SidecarSet/set: spec.patchPodMetadata[0].annotations[a]: only the feature gate SidecarSetPatchPodMetadataDefaultsAllowed of OpenKruise")
	assert.Contains(t, found[2], "note: Not checked: AllAlpha.")
	webhook := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: outriggerWebhook}}
	webhook.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"webhook", "--feature-gates=SidecarSetPatchPodMetadataDefaultsAllowed=true"}}}
	facts.Deployments = append(facts.Deployments, webhook)
	assert.Zero(t, checked(facts).Blocked(), "Outrigger has the gate, too")
}

func TestWebhooksThatAreCalled(t *testing.T) {
	ours, judges := mutatingAs("outrigger", "pods.outrigger.io", "sidecarsets.outrigger.io"), validatingAs("outrigger", "sidecarsets.outrigger.io")
	both := served()
	both.Mutating, both.Validating = append(both.Mutating, ours), append(both.Validating, judges)
	report := checked(both)
	assert.Zero(t, report.Blocked(), report.Findings)
	require.Len(t, report.about("injection"), 1)
	assert.Contains(t, report.about("injection")[0], "differs MutatingWebhookConfiguration/kruise-mutating-webhook-configuration: Webhook mpod.kb.io is called beside the webhook of Outrigger. The webhook of Outrigger is called after it")
	assert.Equal(t, `kubectl patch mutatingwebhookconfiguration kruise-mutating-webhook-configuration --type=json -p `+
		`'[{"op":"test","path":"/webhooks/2/name","value":"msidecarset.kb.io"},{"op":"remove","path":"/webhooks/2"},`+
		`{"op":"test","path":"/webhooks/1/name","value":"mpod.kb.io"},{"op":"remove","path":"/webhooks/1"}]'`, report.Findings[0].Remedy)
	assert.Empty(t, report.Findings[1].Remedy, "one command removes both")
	assert.Contains(t, report.Findings[2].Remedy, "kubectl patch validatingwebhookconfiguration kruise-validating-webhook-configuration ")

	after := served()
	after.Mutating = []admissionregistrationv1.MutatingWebhookConfiguration{mutatingAs("zz-kruise", "mpod.kb.io", "msidecarset.kb.io"), ours}
	assert.Contains(t, checked(after).about("injection")[0], "blocks MutatingWebhookConfiguration/zz-kruise: ", "they have the last word")

	alone := Facts{Mutating: []admissionregistrationv1.MutatingWebhookConfiguration{ours}, Validating: []admissionregistrationv1.ValidatingWebhookConfiguration{judges}}
	assert.Empty(t, checked(alone).Findings)
	installed := ours.DeepCopy()
	installed.Webhooks[1].Rules = nil
	alone.Mutating[0] = *installed
	assert.Equal(t, []string{"blocks: No webhook is called: no new pod gets sidecars."}, checked(alone).about("injection"), "a webhook without rules is not asked")
}

func TestWebhooksBetweenOpenKruiseAndOutrigger(t *testing.T) {
	facts := served()
	for _, name := range []string{"istio-sidecar-injector", "kyverno-resource-mutating-webhook-cfg", "linkerd-proxy-injector-webhook-config", "vault-agent-injector-cfg"} {
		other := mutatingAs(name, name+".example.com", "sets.example.com")
		for i := range other.Webhooks {
			other.Webhooks[i].ClientConfig = admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "other"}}
		}
		facts.Mutating = append(facts.Mutating, other)
	}
	found := checked(facts).about("order")
	require.Len(t, found, 2, "between the two names alone")
	assert.Contains(t, found[0], "differs MutatingWebhookConfiguration/kyverno-resource-mutating-webhook-cfg: Webhook kyverno-resource-mutating-webhook-cfg.example.com is called for new pods after OpenKruise, but before Outrigger")
	assert.Contains(t, found[1], "MutatingWebhookConfiguration/linkerd-proxy-injector-webhook-config")
	facts.Mutating = facts.Mutating[1:]
	assert.Empty(t, checked(facts).about("order"), "nothing is compared without OpenKruise's")
}

func TestWebhooksOfOtherProductsWithThePrefixOfOpenKruise(t *testing.T) {
	facts := served()
	facts.Deployments = []appsv1.Deployment{manager(0)}
	rollouts := mutatingAs("kruise-rollout-mutating-webhook-configuration", "mpod.kb.io", "sets.example.com")
	for i := range rollouts.Webhooks {
		rollouts.Webhooks[i].ClientConfig.Service = &admissionregistrationv1.ServiceReference{Name: "kruise-rollout-webhook-service"}
	}
	facts.Mutating = append(facts.Mutating, rollouts)
	for _, f := range checked(facts).Findings {
		assert.NotContains(t, f.Remedy, "kruise-rollout", "no remedy disables another product")
	}
}

func TestAManagerThatIsStoppedOrRunsBesideOutrigger(t *testing.T) {
	facts := served()
	facts.Deployments = []appsv1.Deployment{manager(0)}
	report := checked(facts)
	found := report.about("admission")
	assert.Contains(t, found[0], "blocks MutatingWebhookConfiguration/kruise-mutating-webhook-configuration: No manager serves it, and 3 of its webhooks reject requests, such as mcloneset.kb.io")
	assert.Equal(t, `kubectl patch mutatingwebhookconfiguration kruise-mutating-webhook-configuration --type=merge -p '{"webhooks":[]}'`, report.Findings[0].Remedy)

	worker := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: outriggerWorker}}
	facts.Deployments = []appsv1.Deployment{manager(2), worker}
	assert.Contains(t, checked(facts).about("controllers")[0], "blocks Deployment/kruise-system/kruise-controller-manager: ")
	others := manager(2)
	others.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: enabledResources, Value: "CloneSet, StatefulSet"}}
	facts.Deployments = []appsv1.Deployment{others, worker}
	assert.Empty(t, checked(facts).about("controllers"), "SidecarSets are not among its kinds")
	stopped, second := manager(0), manager(2)
	second.Name = "kruise-manager-2"
	facts.Deployments = []appsv1.Deployment{stopped, others, second, worker}
	found = checked(facts).about("controllers")
	require.Len(t, found, 1, "only one of the managers upgrades pods")
	assert.Contains(t, found[0], "blocks Deployment/kruise-system/kruise-manager-2: ")
	facts.Deployments = nil
	assert.Contains(t, checked(facts).about("controllers")[0], "note: The manager of OpenKruise is not in the system namespace")
	found = checked(facts).about("admission")
	assert.Contains(t, found[0], "note MutatingWebhookConfiguration/kruise-mutating-webhook-configuration: If no manager in another namespace serves it, 3 of its webhooks reject requests")
}

func TestTheTextNamesBlockersFirst(t *testing.T) {
	set := stored(t, "set")
	set.Annotations[v1alpha1.HashAnnotation] = "theirs"
	facts := served(set)
	facts.Unread = []string{"the Deployments"}
	var text strings.Builder
	require.NoError(t, checked(facts).Write(&text))
	way, differs, known := strings.Index(text.String(), "\nBlockers\n- hash: SidecarSet/set: "), strings.Index(text.String(), "Differences"), strings.Index(text.String(), "- unread: Not checked: the Deployments.\n")
	assert.True(t, way > 0 && way < known && differs < 0, text.String())
	assert.True(t, strings.HasSuffix(text.String(), "\n2 blockers.\n"))
}
