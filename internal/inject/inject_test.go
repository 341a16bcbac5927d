package inject

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

type sidecarOption = func(*v1alpha1.SidecarContainer)

func after(s *v1alpha1.SidecarContainer)  { s.PodInjectPolicy = v1alpha1.AfterAppContainerType }
func before(s *v1alpha1.SidecarContainer) { s.PodInjectPolicy = v1alpha1.BeforeAppContainerType }

func sharing(s *v1alpha1.SidecarContainer) {
	s.ShareVolumePolicy.Type = v1alpha1.ShareVolumePolicyEnabled
	s.ShareVolumeDevicePolicy = &v1alpha1.ShareVolumePolicy{Type: v1alpha1.ShareVolumePolicyEnabled}
}

func hot(s *v1alpha1.SidecarContainer) {
	s.UpgradeStrategy = v1alpha1.SidecarContainerUpgradeStrategy{
		UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: "empty:v1",
	}
}

func mounting(mounts ...corev1.VolumeMount) sidecarOption {
	return func(s *v1alpha1.SidecarContainer) { s.VolumeMounts = mounts }
}

func mount(name, path string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: name, MountPath: path}
}

func env(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }

var noon = metav1.NewTime(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))

// injectInto returns the pod after the patch of the injection, and checks that the injection does not change
// pod.
func injectInto(t *testing.T, pod *corev1.Pod, sets ...*v1alpha1.SidecarSet) *corev1.Pod {
	t.Helper()
	before, err := json.Marshal(pod)
	require.NoError(t, err)
	injection, err := Pod(pod, prepareAll(t, sets...), noon)
	require.NoError(t, err)
	unchanged, err := json.Marshal(pod)
	require.NoError(t, err)
	require.Equal(t, string(before), string(unchanged), "the pod itself is not changed")
	encoded := encodePatch(t, injection)
	patch, err := jsonpatch.DecodePatch(encoded)
	require.NoError(t, err)
	document, err := patch.Apply(before)
	require.NoError(t, err)
	var injected corev1.Pod
	require.NoError(t, json.Unmarshal(document, &injected))
	return &injected
}

func encodePatch(t *testing.T, injection *Injection) []byte {
	t.Helper()
	encoded, err := json.Marshal(injection.Patch())
	require.NoError(t, err)
	return encoded
}

func prepareAll(t *testing.T, sets ...*v1alpha1.SidecarSet) []*Set {
	t.Helper()
	var prepared []*Set
	for _, set := range sets {
		one, err := Prepare(set, set.Name+"-rev")
		require.NoError(t, err)
		prepared = append(prepared, one)
	}
	return prepared
}

func names(containers []corev1.Container) []string {
	var all []string
	for _, container := range containers {
		all = append(all, container.Name+"="+container.Image)
	}
	return all
}

func TestSpec4_1_SetsApplyInNameOrderUnlessPaused(t *testing.T) {
	paused := fixture.SidecarSet("c", fixture.Sidecar("paused"))
	paused.Spec.InjectionStrategy.Paused = true
	injected := injectInto(t, fixture.Pod(fixture.Container("app")),
		fixture.SidecarSet("b", fixture.Sidecar("b1"), fixture.Sidecar("b2", after)), paused,
		fixture.SidecarSet("a", fixture.Sidecar("a2", after), fixture.Sidecar("a1")))
	assert.Equal(t, []string{"a1=a1:v1", "b1=b1:v1", "app=app:v1", "a2=a2:v1", "b2=b2:v1"}, names(injected.Spec.Containers))
	assert.Equal(t, "a,b", injected.Annotations[v1alpha1.InjectedListAnnotation])

	injection, err := Pod(fixture.Pod(fixture.Container("app")), prepareAll(t, paused), noon)
	require.NoError(t, err)
	assert.Empty(t, injection.Patch())
}

func TestSpec4_2_PlacesOfContainers(t *testing.T) {
	for _, test := range []struct {
		name               string
		own, ownInit       []string
		inject, injectInit []v1alpha1.SidecarContainer
		want, wantInit     []string
	}{
		{
			"before and after in the order written", []string{"app1", "app2"}, nil,
			[]v1alpha1.SidecarContainer{
				fixture.Sidecar("z", before), fixture.Sidecar("y", after), fixture.Sidecar("x"), fixture.Sidecar("w", after),
			}, nil,
			[]string{"z=z:v1", "x=x:v1", "app1=app1:own", "app2=app2:own", "y=y:v1", "w=w:v1"}, nil,
		},
		{
			"init containers sorted by name", []string{"app"}, []string{"own"}, nil,
			[]v1alpha1.SidecarContainer{
				fixture.Sidecar("d", after), fixture.Sidecar("c"), fixture.Sidecar("b", before), fixture.Sidecar("a", before),
			},
			[]string{"app=app:own"}, []string{"a=a:v1", "b=b:v1", "own=own:own", "c=c:v1", "d=d:v1"},
		},
		{
			"into no init containers", []string{"app"}, nil, nil,
			[]v1alpha1.SidecarContainer{fixture.Sidecar("b", after), fixture.Sidecar("a", before)},
			[]string{"app=app:own"}, []string{"a=a:v1", "b=b:v1"},
		},
		{
			"a taken name is replaced in its place", []string{"app1", "x", "app2"}, []string{"i", "own"},
			[]v1alpha1.SidecarContainer{fixture.Sidecar("x", before), fixture.Sidecar("y", before), fixture.Sidecar("app2", after)},
			[]v1alpha1.SidecarContainer{fixture.Sidecar("i", after)},
			[]string{"y=y:v1", "app1=app1:own", "x=x:v1", "app2=app2:v1"}, []string{"i=i:v1", "own=own:own"},
		},
		{
			"twins of a hot sidecar replace twins", []string{"app", "x-1"}, nil,
			[]v1alpha1.SidecarContainer{fixture.Sidecar("x", hot)}, nil,
			[]string{"x-2=empty:v1", "app=app:own", "x-1=x:v1"}, nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := fixture.Pod()
			for _, name := range test.own {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: name + ":own"})
			}
			for _, name := range test.ownInit {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name, Image: name + ":own"})
			}
			set := fixture.SidecarSet("s", test.inject...)
			set.Spec.InitContainers = test.injectInit
			injected := injectInto(t, pod, set)
			assert.Equal(t, test.want, names(injected.Spec.Containers))
			assert.Equal(t, test.wantInit, names(injected.Spec.InitContainers))
		})
	}
}

func TestSpec4_3_OnlyUsedVolumesAndThePodsOwnStay(t *testing.T) {
	volume := func(name, medium string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMedium(medium)},
		}}
	}
	first := fixture.SidecarSet("a", fixture.Sidecar("a", mounting(mount("used", "/u"), mount("own", "/o"))))
	first.Spec.Volumes = []corev1.Volume{volume("unused", ""), volume("used", "first"), volume("own", "set"), volume("device", ""), volume("file", ""), volume("init", "")}
	first.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "file", Path: "env", Key: "TOKEN"}}}}
	first.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "device", DevicePath: "/dev/x"}}
	first.Spec.InitContainers = []v1alpha1.SidecarContainer{fixture.Sidecar("i", mounting(mount("init", "/i")))}
	second := fixture.SidecarSet("b", fixture.Sidecar("b", mounting(mount("used", "/u"))))
	second.Spec.Volumes = []corev1.Volume{volume("used", "first")}
	pod := fixture.Pod(fixture.Container("app"))
	pod.Spec.Volumes = []corev1.Volume{volume("own", "pod")}

	injected := injectInto(t, pod, first, second)
	assert.Equal(t, []corev1.Volume{volume("own", "pod"), volume("used", "first"), volume("device", ""), volume("file", ""), volume("init", "")}, injected.Spec.Volumes)
}

func TestSpec4_4_PullSecretsAreAppendedOnce(t *testing.T) {
	secret := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	first, second := fixture.SidecarSet("a", fixture.Sidecar("a")), fixture.SidecarSet("b", fixture.Sidecar("b"))
	first.Spec.ImagePullSecrets = []corev1.LocalObjectReference{secret("x"), secret("own"), secret("x")}
	second.Spec.ImagePullSecrets = []corev1.LocalObjectReference{secret("y"), secret("x")}
	pod := fixture.Pod(fixture.Container("app"))
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{secret("own")}
	assert.Equal(t, []corev1.LocalObjectReference{secret("own"), secret("x"), secret("y")}, injectInto(t, pod, first, second).Spec.ImagePullSecrets)
}

func TestSpec4_5_SharedVolumes(t *testing.T) {
	app1, app2, old := fixture.Container("app1"), fixture.Container("app2"), fixture.Container("old")
	app1.VolumeMounts = []corev1.VolumeMount{mount("data", "/data"), mount("x", "/var/log/"), {
		Name: "sub", MountPath: "/sub", SubPathExpr: "$(A)/$$(B)/$(C)",
	}}
	app1.Env = []corev1.EnvVar{env("C", "c"), env("B", "b"), env("A", "a"), env("OWN", "app")}
	app1.VolumeDevices = []corev1.VolumeDevice{{Name: "d", DevicePath: "/dev/d"}, {Name: "e", DevicePath: "/dev/e"}}
	app2.VolumeMounts = []corev1.VolumeMount{mount("data", "/data"), mount("other", "/sub"), {Name: "ro", MountPath: "/ro", ReadOnly: true, SubPathExpr: "$(OWN)"}}
	app2.Env = []corev1.EnvVar{env("OWN", "app")}
	old.Env = []corev1.EnvVar{env("IS_INJECTED", "true")}
	old.VolumeMounts = []corev1.VolumeMount{mount("old", "/old")}
	replaced := fixture.Container("side")
	replaced.VolumeMounts = []corev1.VolumeMount{mount("replaced", "/replaced")}

	side := fixture.Sidecar("side", sharing, mounting(mount("log", "/var/log")), func(s *v1alpha1.SidecarContainer) {
		s.Env = []corev1.EnvVar{env("OWN", "side")}
		s.VolumeDevices = []corev1.VolumeDevice{{Name: "mine", DevicePath: "/dev/e"}}
	})
	injected := injectInto(t, fixture.Pod(app1, app2, old, replaced), fixture.SidecarSet("s", side), fixture.SidecarSet("t", fixture.Sidecar("plain")))
	got := injected.Spec.Containers[4]
	assert.Equal(t, corev1.Container{
		Name: "side", Image: "side:v1",
		Env: []corev1.EnvVar{env("OWN", "side"), env("IS_INJECTED", "true"), env("A", "a"), env("C", "c")},
		VolumeMounts: []corev1.VolumeMount{
			mount("log", "/var/log"), mount("data", "/data"), app1.VolumeMounts[2], app2.VolumeMounts[2],
		},
		VolumeDevices: []corev1.VolumeDevice{{Name: "mine", DevicePath: "/dev/e"}, {Name: "d", DevicePath: "/dev/d"}},
	}, got)
	assert.Empty(t, injected.Spec.Containers[0].VolumeMounts, "set t shares nothing")
}

func TestSpec4_6_TransferredEnv(t *testing.T) {
	app, other := fixture.Container("app"), fixture.Container("other")
	fromField := corev1.EnvVar{Name: "C", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}
	app.Env = []corev1.EnvVar{env("A", "1"), env("B", "2"), fromField, env("OWN", "app")}
	app.Env = append(app.Env, env("TWICE", "first"), env("TWICE", "last"))
	other.Env = []corev1.EnvVar{env("A", "other"), env("D", "4")}
	from := func(field string) *v1alpha1.SourceContainerNameSource {
		return &v1alpha1.SourceContainerNameSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}
	}
	for name, test := range map[string]struct {
		transfer []v1alpha1.TransferEnvVar
		want     []corev1.EnvVar
	}{
		"one name":               {[]v1alpha1.TransferEnvVar{{SourceContainerName: "app", EnvName: "B"}}, []corev1.EnvVar{env("B", "2")}},
		"names are sorted":       {[]v1alpha1.TransferEnvVar{{SourceContainerName: "app", EnvName: "B", EnvNames: []string{"C", "A", "B"}}}, []corev1.EnvVar{env("A", "1"), env("B", "2"), fromField}},
		"entry by entry":         {[]v1alpha1.TransferEnvVar{{SourceContainerName: "other", EnvName: "D"}, {SourceContainerName: "app", EnvName: "B"}}, []corev1.EnvVar{env("D", "4"), env("B", "2")}},
		"the first entry wins":   {[]v1alpha1.TransferEnvVar{{SourceContainerName: "other", EnvName: "A"}, {SourceContainerName: "app", EnvName: "A"}}, []corev1.EnvVar{env("A", "other")}},
		"the sidecar's own wins": {[]v1alpha1.TransferEnvVar{{SourceContainerName: "app", EnvName: "OWN"}}, nil},
		"the last duplicate":     {[]v1alpha1.TransferEnvVar{{SourceContainerName: "app", EnvName: "TWICE"}}, []corev1.EnvVar{env("TWICE", "last")}},
		"missing are skipped":    {[]v1alpha1.TransferEnvVar{{SourceContainerName: "nope", EnvName: "A"}, {SourceContainerName: "app", EnvName: "NOPE"}}, nil},
		"by label":               {[]v1alpha1.TransferEnvVar{{SourceContainerNameFrom: from("metadata.labels['c']"), EnvName: "D"}}, []corev1.EnvVar{env("D", "4")}},
		"by annotation":          {[]v1alpha1.TransferEnvVar{{SourceContainerNameFrom: from("metadata.annotations['a/b']"), EnvName: "B"}}, []corev1.EnvVar{env("B", "2")}},
		"by pod name":            {[]v1alpha1.TransferEnvVar{{SourceContainerNameFrom: from("metadata.name"), EnvName: "B"}}, []corev1.EnvVar{env("B", "2")}},
		"by a missing label":     {[]v1alpha1.TransferEnvVar{{SourceContainerNameFrom: from("metadata.labels['no']"), EnvName: "D"}}, nil},
		"by an unknown field":    {[]v1alpha1.TransferEnvVar{{SourceContainerNameFrom: from("spec.nodeName"), EnvName: "D"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := fixture.Pod(app, other)
			pod.Name = "app"
			pod.Labels["c"] = "other"
			pod.Annotations = map[string]string{"a/b": "app"}
			side := fixture.Sidecar("side", func(s *v1alpha1.SidecarContainer) {
				s.Env, s.TransferEnv = []corev1.EnvVar{env("OWN", "side")}, test.transfer
			})
			injected := injectInto(t, pod, fixture.SidecarSet("s", side))
			assert.Equal(t, append([]corev1.EnvVar{env("OWN", "side"), env("IS_INJECTED", "true")}, test.want...), injected.Spec.Containers[0].Env)
		})
	}
}

// If several variables have the same name, the kubelet uses the last variable.
func TestSpec4_6_OfDuplicateVariablesTheLastCounts(t *testing.T) {
	app := fixture.Container("app")
	app.Env = []corev1.EnvVar{env("DIR", "first"), env("DIR", "last")}
	app.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPathExpr: "$(DIR)"}}
	side := fixture.Sidecar("side", sharing, func(s *v1alpha1.SidecarContainer) {
		s.Env = []corev1.EnvVar{env("IS_INJECTED", "true"), env("IS_INJECTED", "false")}
	})
	injected := injectInto(t, fixture.Pod(app), fixture.SidecarSet("s", side)).Spec.Containers[0].Env
	assert.Equal(t, []corev1.EnvVar{env("IS_INJECTED", "true"), env("IS_INJECTED", "true"), env("DIR", "last")}, injected)
}

func TestSpec4_8_HotTwins(t *testing.T) {
	side := fixture.Sidecar("envoy", hot, sharing, func(s *v1alpha1.SidecarContainer) {
		s.TransferEnv = []v1alpha1.TransferEnvVar{{SourceContainerName: "app", EnvName: "A"}}
	})
	app := fixture.Container("app")
	app.Env = []corev1.EnvVar{env("A", "1")}
	pod := fixture.Pod(app)
	pod.Annotations = map[string]string{v1alpha1.WorkingHotUpgradeContainerAnnotation: `{"mosn":"mosn-2"}`}
	set := fixture.SidecarSet("s", side)
	injected := injectInto(t, pod, set)

	twin := func(name, image string) corev1.Container {
		return corev1.Container{Name: name, Image: image, Env: []corev1.EnvVar{
			env("IS_INJECTED", "true"), env("A", "1"),
			fromAnnotation("SIDECARSET_VERSION", "version.sidecarset.kruise.io/"+name),
			fromAnnotation("SIDECARSET_VERSION_ALT", "versionalt.sidecarset.kruise.io/"+name),
		}}
	}
	assert.Equal(t, []corev1.Container{twin("envoy-1", "envoy:v1"), twin("envoy-2", "empty:v1"), app}, injected.Spec.Containers)
	hashes, blank := v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation
	assert.Equal(t, map[string]string{
		"kruise.io/sidecarset-injected-list":                "s",
		"kruise.io/sidecarset-working-hotupgrade-container": `{"envoy":"envoy-1","mosn":"mosn-2"}`,
		"version.sidecarset.kruise.io/envoy-1":              "1", "versionalt.sidecarset.kruise.io/envoy-1": "0",
		"version.sidecarset.kruise.io/envoy-2": "0", "versionalt.sidecarset.kruise.io/envoy-2": "1",
		hashes: `{"s":{"updateTimestamp":"2024-01-02T12:00:00Z","hash":"` + set.Annotations[hashes] + `","sidecarSetName":"s","sidecarList":["envoy"],"controllerRevision":"s-rev"}}`,
		blank:  `{"s":{"updateTimestamp":"2024-01-02T12:00:00Z","hash":"` + set.Annotations[blank] + `","sidecarSetName":"s","sidecarList":["envoy"]}}`,
	}, injected.Annotations)
}

func TestSpec4_8_5_ResourcesOfAHotSidecarAreThoseOfItsTwin(t *testing.T) {
	limit := func(container string) corev1.EnvVar {
		return corev1.EnvVar{Name: "LIMIT_" + strings.ToUpper(container), ValueFrom: &corev1.EnvVarSource{
			ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: container, Resource: "limits.memory"},
		}}
	}
	side := fixture.Sidecar("envoy", hot, func(s *v1alpha1.SidecarContainer) { s.Env = []corev1.EnvVar{limit("envoy"), limit("app")} })
	set := fixture.SidecarSet("s", side)
	injected := injectInto(t, fixture.Pod(fixture.Container("app")), set).Spec.Containers
	for i, twin := range []string{"envoy-1", "envoy-2"} {
		assert.Equal(t, twin, injected[i].Env[0].ValueFrom.ResourceFieldRef.ContainerName)
		assert.Equal(t, "app", injected[i].Env[1].ValueFrom.ResourceFieldRef.ContainerName)
	}
	app := fixture.Container("envoy")
	app.Env = []corev1.EnvVar{{Name: "COPIED", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}}}
	started := fixture.Pod(fixture.Container("app"))
	started.Spec.InitContainers = []corev1.Container{fixture.Container("envoy")}
	for _, container := range injectInto(t, started, set).Spec.Containers[:2] {
		assert.Equal(t, "envoy", container.Env[0].ValueFrom.ResourceFieldRef.ContainerName, "the pod has this init container")
	}
	side.TransferEnv = []v1alpha1.TransferEnvVar{{SourceContainerName: "envoy", EnvName: "COPIED"}}
	injected = injectInto(t, fixture.Pod(app), fixture.SidecarSet("s", side)).Spec.Containers
	assert.Equal(t, "envoy", injected[0].Env[0].ValueFrom.ResourceFieldRef.ContainerName, "the pod has this container")
	assert.Equal(t, "envoy", injected[0].Env[3].ValueFrom.ResourceFieldRef.ContainerName)
	assert.Equal(t, "envoy", set.Spec.Containers[0].Env[0].ValueFrom.ResourceFieldRef.ContainerName, "the SidecarSet is shared")
}

func TestUnknownFieldsOfThePodSurvive(t *testing.T) {
	document := []byte(`{"metadata":{"labels":{"app":"web"}},"spec":{"future":1,"containers":[{"name":"app","future":{"a":[1]}}]}}`)
	var pod corev1.Pod
	require.NoError(t, json.Unmarshal(document, &pod))
	injection, err := Pod(&pod, prepareAll(t, fixture.SidecarSet("s", fixture.Sidecar("side"))), noon)
	require.NoError(t, err)
	encoded := encodePatch(t, injection)
	patch, err := jsonpatch.DecodePatch(encoded)
	require.NoError(t, err)
	result, err := patch.Apply(document)
	require.NoError(t, err)
	var patched struct {
		Spec struct {
			Future     int
			Containers []map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(result, &patched))
	assert.Equal(t, 1, patched.Spec.Future)
	assert.Equal(t, map[string]any{"name": "app", "future": map[string]any{"a": []any{1.0}}}, patched.Spec.Containers[1])
}

func TestSpec4_12_ErrorsNameSetContainerAndCause(t *testing.T) {
	withPolicy := func(text string) v1alpha1.SidecarContainer {
		return fixture.Sidecar("side", func(s *v1alpha1.SidecarContainer) {
			require.NoError(t, yaml.Unmarshal([]byte(text), &s.ResourcesPolicy))
		})
	}
	patching := func(value string) *v1alpha1.SidecarSet {
		set := fixture.SidecarSet("s", fixture.Sidecar("side"))
		set.Spec.PatchPodMetadata = []v1alpha1.SidecarSetPatchPodMetadata{
			{Annotations: map[string]string{"k": value}, PatchPolicy: v1alpha1.SidecarSetMergePatchJSONPolicy},
		}
		return set
	}
	for name, test := range map[string]struct {
		set         *v1alpha1.SidecarSet
		annotations map[string]string
		want        []string
	}{
		"no target":        {fixture.SidecarSet("s", withPolicy(`{targetContainersNameRegex: x.*}`)), nil, []string{"SidecarSet s", "container side", `"x.*"`}},
		"below zero":       {fixture.SidecarSet("s", withPolicy(`{resourcesExpr: {requests: {cpu: cpu-1}}}`)), nil, []string{"SidecarSet s", "container side", "requests: cpu", "below zero"}},
		"too large":        {fixture.SidecarSet("s", withPolicy(`{resourcesExpr: {requests: {memory: 100E}}}`)), nil, []string{"SidecarSet s", "container side", "memory", "does not fit"}},
		"by zero":          {fixture.SidecarSet("s", withPolicy(`{resourcesExpr: {requests: {memory: 1/memory}}}`)), nil, []string{"SidecarSet s", "container side", "division by zero"}},
		"expression":       {fixture.SidecarSet("s", withPolicy(`{resourcesExpr: {limits: {memory: "("}}}`)), nil, []string{"SidecarSet s", "container side", "resourcesExpr.limits: memory"}},
		"regex":            {fixture.SidecarSet("s", withPolicy(`{targetContainersNameRegex: "("}`)), nil, []string{"SidecarSet s", "container side", "targetContainersNameRegex"}},
		"not JSON":         {patching("{"), nil, []string{"SidecarSet s", "annotation k", "SidecarSet's value is not JSON"}},
		"the pod not JSON": {patching("{}"), map[string]string{"k": "plain"}, []string{"SidecarSet s", "annotation k", "pod's value is not JSON"}},
		"bad record":       {fixture.SidecarSet("s", fixture.Sidecar("side")), map[string]string{v1alpha1.HashAnnotation: "["}, []string{"SidecarSet s", v1alpha1.HashAnnotation}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := fixture.Pod(fixture.Container("app"))
			pod.Annotations = test.annotations
			prepared, err := Prepare(test.set, "rev")
			if err == nil {
				_, err = Pod(pod, []*Set{prepared}, noon)
			}
			for _, want := range test.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

// Admission does not compare SidecarSets that are created at the same time.
func TestSpec4_12_TwoSetsWithOneContainerNameRejectThePodByName(t *testing.T) {
	var sets []*Set
	for _, set := range []*v1alpha1.SidecarSet{
		fixture.SidecarSet("a", fixture.Sidecar("proxy-1")), fixture.SidecarSet("b", fixture.Sidecar("other")),
		fixture.SidecarSet("c", fixture.Sidecar("proxy", func(c *v1alpha1.SidecarContainer) {
			c.UpgradeStrategy = v1alpha1.SidecarContainerUpgradeStrategy{UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: "empty:1"}
		})),
	} {
		prepared, err := Prepare(set, "rev")
		require.NoError(t, err)
		sets = append(sets, prepared)
	}
	_, err := Pod(fixture.Pod(fixture.Container("app")), sets, noon)
	require.EqualError(t, err, "SidecarSet c: container proxy-1: SidecarSet a injects a container of this name, too; rename it or narrow spec.selector")
	_, err = Pod(fixture.Pod(fixture.Container("app"), fixture.Container("proxy-1")), sets, noon)
	require.ErrorContains(t, err, "SidecarSet a injects a container of this name, too", "one would take the place of the other's")
}

// Container names are unique across the containers and the init containers of a pod.
func TestSpec4_12_AContainerAndAnInitContainerOfOneNameRejectThePodByName(t *testing.T) {
	asInit := fixture.SidecarSet("init")
	asInit.Spec.InitContainers = []v1alpha1.SidecarContainer{fixture.Sidecar("agent")}
	asContainer := fixture.SidecarSet("main", fixture.Sidecar("agent"))
	withInit := fixture.Pod(fixture.Container("app"))
	withInit.Spec.InitContainers = []corev1.Container{fixture.Container("agent")}
	for _, test := range []struct {
		pod  *corev1.Pod
		sets []*v1alpha1.SidecarSet
		want string
	}{
		{fixture.Pod(fixture.Container("app")), []*v1alpha1.SidecarSet{asInit, asContainer}, "SidecarSet main: container agent: SidecarSet init injects a container of this name, too; rename it or narrow spec.selector"},
		{fixture.Pod(fixture.Container("agent")), []*v1alpha1.SidecarSet{asInit}, "SidecarSet init: init container agent: the pod has a container of this name; rename one of them"},
		{withInit, []*v1alpha1.SidecarSet{asContainer}, "SidecarSet main: container agent: the pod has an init container of this name; rename one of them"},
	} {
		_, err := Pod(test.pod, prepareAll(t, test.sets...), noon)
		require.EqualError(t, err, test.want)
	}
}

func TestSpec4_12_TwoVolumesOfOneNameRejectThePodByName(t *testing.T) {
	set := func(name string, volume corev1.Volume) *v1alpha1.SidecarSet {
		made := fixture.SidecarSet(name, fixture.Sidecar("in-"+name, mounting(mount("data", "/data"))))
		made.Spec.Volumes = []corev1.Volume{volume}
		return made
	}
	hostPath := func(path string, kind *corev1.HostPathType) corev1.Volume {
		return corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: kind}}}
	}
	a := set("a", hostPath("/a", nil))
	_, err := Pod(fixture.Pod(fixture.Container("app")), prepareAll(t, a, set("b", hostPath("/b", nil))), noon)
	require.EqualError(t, err, "SidecarSet b: volume data: SidecarSet a has another volume of this name; rename it or make them equal")
	var cause SetError
	require.ErrorAs(t, err, &cause)
	assert.Equal(t, "b", cause.Set)

	equal := set("b", hostPath("/a", new(corev1.HostPathUnset)))
	assert.Len(t, injectInto(t, fixture.Pod(fixture.Container("app")), a, equal).Spec.Volumes, 1, "a default apart")
	unused := set("b", hostPath("/b", nil))
	unused.Spec.Containers[0].VolumeMounts = nil
	assert.Len(t, injectInto(t, fixture.Pod(fixture.Container("app")), a, unused).Spec.Volumes, 1, "nothing mounts the other one")
	own := fixture.Pod(fixture.Container("app"))
	own.Spec.Volumes = []corev1.Volume{{Name: "data"}}
	assert.Len(t, injectInto(t, own, a, set("b", hostPath("/b", nil))).Spec.Volumes, 1, "the pod's own stays")
}

func TestSpec4_2_AnAppContainerThatASidecarReplacesIsWarnedOf(t *testing.T) {
	sets := prepareAll(t, fixture.SidecarSet("s", fixture.Sidecar("side")))
	injection, err := Pod(fixture.Pod(fixture.Container("app"), fixture.Container("side")), sets, noon)
	require.NoError(t, err)
	assert.Equal(t, []string{"container side: a container of SidecarSet s replaces it"}, injection.Warnings())
	left := fixture.Container("side")
	left.Env = []corev1.EnvVar{env(v1alpha1.InjectedEnv, "true")}
	injection, err = Pod(fixture.Pod(fixture.Container("app"), left), sets, noon)
	require.NoError(t, err)
	assert.Empty(t, injection.Warnings(), "what an injection left in a copied pod")

	init := fixture.SidecarSet("i")
	init.Spec.InitContainers = []v1alpha1.SidecarContainer{fixture.Sidecar("setup")}
	pod := fixture.Pod(fixture.Container("app"))
	pod.Spec.InitContainers = []corev1.Container{fixture.Container("setup")}
	injection, err = Pod(pod, prepareAll(t, init), noon)
	require.NoError(t, err)
	assert.Equal(t, []string{"container setup: a container of SidecarSet i replaces it"}, injection.Warnings())
}

func BenchmarkPod(b *testing.B) {
	set, err := Prepare(fixture.SidecarSet("s", fixture.Sidecar("a", sharing), fixture.Sidecar("b")), "rev")
	require.NoError(b, err)
	pod := fixture.Pod(fixture.Container("app"))
	for b.Loop() {
		injection, err := Pod(pod, []*Set{set}, noon)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := json.Marshal(injection.Patch()); err != nil {
			b.Fatal(err)
		}
	}
}
