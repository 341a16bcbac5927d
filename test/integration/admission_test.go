package integration

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestBadManifestsAreRejectedByTheFieldThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ spec, field string }{
		"no selector":                     {`{containers: [{name: side, image: "side:v1"}]}`, "spec.selector"},
		"no containers":                   {`{selector: {matchLabels: {app: x}}}`, "spec.containers"},
		"number in a string":              {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1"}], updateStrategy: {maxUnavailable: "5"}}`, "spec.updateStrategy.maxUnavailable"},
		"percent out of range":            {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1"}], updateStrategy: {partition: "101%"}}`, "spec.updateStrategy.partition"},
		"containers that are not a list":  {`{selector: {matchLabels: {app: x}}, containers: "side"}`, "containers"},
		"a type that the schema disowns":  {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1"}], updateStrategy: {paused: "yes"}}`, "spec.updateStrategy.paused"},
		"a container that has no name":    {`{selector: {matchLabels: {app: x}}, containers: [{image: "side:v1"}]}`, "spec.containers[0].name"},
		"a mount that names no volume":    {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1", volumeMounts: [{name: v, mountPath: /v}]}]}`, "spec.containers[0].volumeMounts[0].name"},
		"an unknown policy":               {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1", podInjectPolicy: Sideways}]}`, "spec.containers[0].podInjectPolicy"},
		"an update strategy of no kind":   {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1"}], updateStrategy: {type: Recreate}}`, "spec.updateStrategy.type"},
		"hot upgrade without empty image": {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1", upgradeStrategy: {upgradeType: HotUpgrade}}]}`, "spec.containers[0].upgradeStrategy.hotUpgradeEmptyImage"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := kubectl(t.Context(), "{apiVersion: apps.kruise.io/v1alpha1, kind: SidecarSet, metadata: {name: bad}, spec: "+c.spec+"}", "apply", "-f", "-")
			require.Error(t, err, "accepted: %s", out)
			assert.Contains(t, out, c.field)
			assert.NotContains(t, out, "Internal error")
		})
	}
}

func TestUnknownContainerFieldsSurvive(t *testing.T) {
	const manifest = `{apiVersion: apps.kruise.io/v1alpha1, kind: SidecarSet, metadata: {name: future}, spec: {selector: {matchLabels: {app: future}},
		containers: [{name: side, image: "side:v1", fieldOfTheFuture: {a: 1}, lifecycle: {hookOfTheFuture: x}}]}}`
	out, err := kubectl(t.Context(), manifest, "apply", "-f", "-")
	require.NoError(t, err, out)
	defer func() {
		out, err := kubectl(t.Context(), "", "delete", "sidecarset", "future")
		assert.NoError(t, err, out)
	}()
	out, err = kubectl(t.Context(), "", "get", "sidecarset", "future", "-o", "jsonpath={.spec.containers[0].fieldOfTheFuture.a} {.spec.containers[0].lifecycle.hookOfTheFuture}")
	require.NoError(t, err, out)
	assert.Equal(t, "1 x", out)
	out, err = kubectl(t.Context(), manifest, "diff", "-f", "-")
	require.NoError(t, err, "a second apply would change something: %s", out)
}

func TestOptedOutNamespacesAreLeftAlone(t *testing.T) {
	s := newScenario(t, 0, nil)
	image := func() string {
		out, err := kubectl(s.ctx, "", "run", "probe", "-n", s.name, "--image=app:1", "--labels=app="+s.name, "--dry-run=server", "-o", "jsonpath={.spec.containers[*].name}")
		require.NoError(t, err, out)
		return out
	}
	assert.Equal(t, "side probe", image())
	out, err := kubectl(s.ctx, "", "label", "namespace", s.name, "outrigger.io/injection=disabled")
	require.NoError(t, err, out)
	s.poll("the API server to leave the webhook out", func() (bool, error) { return image() == "probe", nil })
}

// rejection creates a SidecarSet with spec in a dry run, and returns the fields that the API server rejects.
func rejection(t *testing.T, spec string) []string {
	t.Helper()
	set := &unstructured.Unstructured{}
	text := "{apiVersion: apps.kruise.io/v1alpha1, kind: SidecarSet, metadata: {name: bad}, spec: " + spec + "}"
	require.NoError(t, yaml.Unmarshal([]byte(text), &set.Object), text)
	err := stack.kube.Create(t.Context(), set, client.DryRunAll)
	if err == nil {
		return nil
	}
	require.True(t, apierrors.IsInvalid(err), "%s: %v", spec, err)
	status := apierrors.APIStatus(nil)
	require.ErrorAs(t, err, &status)
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, cause.Field)
	}
	return slices.Compact(fields)
}

func TestSpec5_KubernetesRejectsInvalidContainers(t *testing.T) {
	for container, want := range map[string][]string{
		`image: b`:    nil,
		`image: "b "`: {"image"},
		`image: b, ports: [{containerPort: 70000}, {containerPort: 1, name: UPPER}, {containerPort: 2, protocol: ICMP}]`: {"ports[0].containerPort", "ports[1].name", "ports[2].protocol"},
		`image: b, livenessProbe: {httpGet: {port: 80}, periodSeconds: -1}`:                                              {"livenessProbe.periodSeconds"},
		`image: b, readinessProbe: {exec: {command: [a]}, httpGet: {port: 80}}`:                                          {"readinessProbe.httpGet"},
		`image: b, startupProbe: {}`:                                  {"startupProbe"},
		`image: b, resources: {limits: {cpu: 1}, requests: {cpu: 2}}`: {"resources.requests"},
		`image: b, resources: {limits: {cpu: -1}}`:                    {"resources.limits[cpu]", "resources.requests[cpu]"},
		`image: b, resources: {limits: {cpu: one}}`:                   {"resources.limits[cpu]"},
		`image: b, resources: {claims: [{name: gpu}]}`:                {"resources.claims[0]"},
		`image: b, env: [{name: "", value: a}, {name: A, value: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: B, valueFrom: {fieldRef: {fieldPath: nothing}}}]`: {"env[0].name", "env[1].valueFrom", "env[2].valueFrom.fieldRef.fieldPath"},
		`image: b, terminationMessagePolicy: Somehow`:                                                                       {"terminationMessagePolicy"},
		`image: b, securityContext: {allowPrivilegeEscalation: false, privileged: true}`:                                    {"securityContext"},
		`image: b, lifecycle: {preStop: {}}`:                                                                                {"lifecycle.preStop"},
		`image: b, restartPolicy: Sometimes`:                                                                                {"restartPolicy"},
		`image: b, volumeMounts: [{name: v, mountPath: /a, subPath: ../b}, {name: v, mountPath: /c, mountPropagation: Up}]`: {"volumeMounts.subPath", "volumeMounts.mountPropagation"},
		`image: b, volumeDevices: [{name: v, devicePath: /dev/x}]`:                                                          {"volumeDevices[0].name"},
		`image: b, workingDir: 5, args: {}`:                                                                                 {"args", "workingDir"},
		`image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: " e"}, ports: [{containerPort: 0}]`:     {"ports[0].containerPort", "upgradeStrategy.hotUpgradeEmptyImage"},
		`image: b, ports: [{containerPort: 80, name: a}], resourcesPolicy: {targetContainersMode: sum, resourcesExpr: {limits: {cpu: cpu}}}, args: [$(FROM_THE_APP)], transferEnv: [{sourceContainerName: app, envName: FROM_THE_APP}], shareVolumePolicy: {type: enabled}`: nil,
	} {
		for i := range want {
			want[i] = "spec.containers[1]." + want[i]
		}
		got := rejection(t, `{selector: {matchLabels: {app: bad}}, volumes: [{name: v}], containers: [{name: first, image: b}, {name: second, `+container+`}]}`)
		assert.ElementsMatch(t, want, got, container)
	}
	for rest, want := range map[string][]string{
		`volumes: [{name: a, hostPath: {path: ../x}}, {name: b, emptyDir: {}, secret: {secretName: s}}, {name: c, secret: {}}, {name: d, configMap: {}}]`: {
			"spec.volumes[0].hostPath.path", "spec.volumes[1].secret", "spec.volumes[2].secret.secretName", "spec.volumes[3].configMap.name",
		},
		`initContainers: [{name: i, image: b, readinessProbe: {exec: {command: [a]}}}, {name: j, image: b, ports: [{containerPort: 0}]}]`: {
			"spec.initContainers[0].readinessProbe", "spec.initContainers[1].ports[0].containerPort",
		},
		`initContainers: [{name: app, image: b}]`:                                                                 nil,
		`initContainers: [{name: app, image: b, stdin: 1}]`:                                                       {"spec.initContainers[0].stdin"},
		`initContainers: [{name: native, image: b, restartPolicy: Always, startupProbe: {exec: {command: [a]}}}]`: nil,
	} {
		if rest[0] == 'v' {
			rest += `, containers: [{name: c, image: b}]`
		}
		assert.ElementsMatch(t, want, rejection(t, `{selector: {matchLabels: {app: bad}}, `+rest+`}`), rest)
	}
}

func TestSpec5_OneResponseHasErrorsOfOutriggerAndKubernetes(t *testing.T) {
	assert.Equal(t, []string{
		"spec.selector", "spec.containers[0].image", "spec.updateStrategy.partition", "spec.containers[0].ports[0].containerPort",
	}, rejection(t, `{containers: [{name: a, ports: [{containerPort: 0}]}], updateStrategy: {partition: -1}}`))
}

// An update that changes only the strategy is admitted, even if a dry run of the containers fails.
func TestSpec5_OnlyChangedContainersAreValidatedByDryRun(t *testing.T) {
	s := newScenario(t, 0, nil)
	enforce := func(level string) {
		out, err := kubectl(context.WithoutCancel(s.ctx), "", "label", "namespace", "outrigger-validation", "pod-security.kubernetes.io/enforce="+level, "--overwrite")
		require.NoError(t, err, out)
	}
	enforce("restricted")
	t.Cleanup(func() { enforce("privileged") })
	change := func(patch string) error {
		return stack.kube.Patch(s.ctx, s.set, client.RawPatch("application/merge-patch+json", []byte(patch)), client.DryRunAll)
	}
	s.poll("the restriction", func() (bool, error) {
		return change(`{"spec":{"containers":[{"name":"side","image":"side:v2"}]}}`) != nil, nil
	})
	err := change(`{"spec":{"containers":[{"name":"side","image":"side:v2"}]}}`)
	require.ErrorContains(t, err, "exempt namespace outrigger-validation from it")
	require.False(t, apierrors.IsInvalid(err), "a policy is no fault of the set: %v", err)
	require.NoError(t, change(`{"spec":{"updateStrategy":{"paused":true}}}`))
	err = change(`{"spec":{"updateStrategy":{"type":"Never"},"containers":[{"name":"side","image":"side:v2"}]}}`)
	require.True(t, apierrors.IsInvalid(err), "what is known to be wrong is said in any case: %v", err)
}

// allowMetadata creates a whitelist, and deletes the whitelist at the end of the test.
func (s *scenario) allowMetadata(keys string) {
	configuration := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: v1alpha1.ConfigurationName}}
	configuration.Data = map[string]string{v1alpha1.MetadataWhitelistKey: `{"rules":[{"allowedAnnotationKeyExprs":["` + keys + `"]}]}`}
	require.NoError(s.t, stack.kube.Create(s.ctx, configuration))
	s.t.Cleanup(func() { assert.NoError(s.t, stack.kube.Delete(context.WithoutCancel(s.ctx), configuration)) })
}

func TestSpec5_TheWhitelistIsFollowed(t *testing.T) {
	s := newScenario(t, 0, nil)
	const spec = `{selector: {matchLabels: {app: bad}}, containers: [{name: a, image: b}], patchPodMetadata: [{annotations: {oom-score: '1', other: '2'}}]}`
	s.poll("whitelists of other tests to be gone", func() (bool, error) {
		both := []string{"spec.patchPodMetadata[0].annotations[oom-score]", "spec.patchPodMetadata[0].annotations[other]"}
		return slices.Equal(both, rejection(t, spec)), nil
	})
	s.allowMetadata("^oom-score$")
	s.poll("the whitelist", func() (bool, error) { return len(rejection(t, spec)) == 1, nil })
	assert.Equal(t, []string{"spec.patchPodMetadata[0].annotations[other]"}, rejection(t, spec))
}

// everyField returns SidecarSets that together use all fields.
func everyField(t *testing.T) (manifest string, sets []v1alpha1.SidecarSet) {
	raw, err := os.ReadFile("testdata/every-field.yaml")
	require.NoError(t, err)
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), len(raw))
	for {
		var set v1alpha1.SidecarSet
		if err := documents.Decode(&set); errors.Is(err, io.EOF) {
			return string(raw), sets
		} else {
			require.NoError(t, err)
		}
		sets = append(sets, set)
	}
}

// unused returns the fields that are zero in every value. unused descends only into the types of this API and
// into containers.
func unused(values []reflect.Value, t reflect.Type, at string) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		var items []reflect.Value
		for _, value := range values {
			switch {
			case value.Kind() == reflect.Pointer && !value.IsNil():
				items = append(items, value.Elem())
			case value.Kind() == reflect.Slice:
				for i := range value.Len() {
					items = append(items, value.Index(i))
				}
			}
		}
		return unused(items, t.Elem(), at)
	}
	if !slices.ContainsFunc(values, func(v reflect.Value) bool { return !v.IsZero() }) {
		return []string{at}
	}
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[v1alpha1.SidecarSet]().PkgPath() && t != reflect.TypeFor[corev1.Container]() {
		return nil
	}
	var missing []string
	for i := range t.NumField() {
		var fields []reflect.Value
		for _, value := range values {
			fields = append(fields, value.Field(i))
		}
		missing = append(missing, unused(fields, t.Field(i).Type, at+"."+t.Field(i).Name)...)
	}
	return missing
}

func TestAppliedSetsWithEveryFieldDoNotDrift(t *testing.T) {
	s := newScenario(t, 0, nil)
	manifest, sets := everyField(t)
	var specs []reflect.Value
	for _, set := range sets {
		// spec.containers and spec.initContainers both contain all containers, because some fields are valid
		// in only one of these lists.
		set.Spec.Containers = append(set.Spec.Containers, set.Spec.InitContainers...)
		set.Spec.InitContainers = set.Spec.Containers
		specs = append(specs, reflect.ValueOf(set.Spec))
	}
	// In v1alpha1, a custom version is a label. A pinned revision must exist before the SidecarSet.
	assert.Equal(t, []string{"spec.CustomVersion", "spec.InjectionStrategy.Revision.RevisionName"}, unused(specs, specs[0].Type(), "spec"))
	t.Cleanup(func() {
		out, err := kubectl(context.WithoutCancel(s.ctx), manifest, "delete", "-f", "-")
		assert.NoError(t, err, out)
	})
	s.allowMetadata(".*")
	s.poll("the whitelist", func() (bool, error) {
		_, err := kubectl(s.ctx, manifest, "apply", "--dry-run=server", "-f", "-")
		return err == nil, nil
	})
	for _, mode := range [][]string{{"--server-side=false"}, {"--server-side", "--force-conflicts"}} {
		run := func(args ...string) string {
			out, err := kubectl(s.ctx, manifest, slices.Concat(args, mode, []string{"-f", "-"})...)
			require.NoError(t, err, "%v %v: %s", args, mode, out)
			return out
		}
		version := func() string {
			out, err := kubectl(s.ctx, manifest, "get", "-f", "-", "-o", "jsonpath={.items[*].metadata.generation} {.items[*].spec}")
			require.NoError(t, err, out)
			return out
		}
		// kubectl diff returns an error if there is a difference.
		run("apply")
		before := version()
		run("diff")
		run("apply")
		assert.Equal(t, before, version())
		run("diff")
	}
}

func TestPodsWithOwnResourcesOrTheNetworkOfTheHostAreAdmitted(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 0, func(set *v1alpha1.SidecarSet) {
		side := &set.Spec.Containers[0]
		side.Ports = []corev1.ContainerPort{{Name: "admin", ContainerPort: 15020}}
		side.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("admin")}}}
		side.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
		side.UpgradeStrategy = v1alpha1.SidecarContainerUpgradeStrategy{UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: "empty:v1"}
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "app", Labels: map[string]string{"app": s.name}}}
	pod.Spec = deployment(s.name, 1).Spec.Template.Spec
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	// The API server sets the CPU request of the pod to the CPU requests of its containers.
	pod.Spec.Resources = &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
	require.NoError(t, stack.kube.Create(s.ctx, pod, client.DryRunAll))
	require.Len(t, pod.Spec.Containers, 3)
	assert.Equal(t, "1200m", pod.Spec.Resources.Requests.Cpu().String())
	assert.Equal(t, "128Mi", pod.Spec.Resources.Requests.Memory().String())
	assert.Equal(t, int32(15020), pod.Spec.Containers[0].Ports[0].HostPort)
	assert.Empty(t, pod.Spec.Containers[1].Ports)
	assert.Equal(t, int32(15020), pod.Spec.Containers[1].ReadinessProbe.TCPSocket.Port.IntVal)
}
