package inject

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

func TestSpec4_5_VariablesThatVariablesReferenceAreShared(t *testing.T) {
	app := fixture.Container("app")
	app.VolumeMounts = []corev1.VolumeMount{{Name: "logs", MountPath: "/logs", SubPathExpr: "$(DIR)"}}
	app.Env = []corev1.EnvVar{env("POD", "web-1"), env("LATER", "$(DIR)"), env("UNUSED", "x"), env("DIR", "/logs/$(POD)/$(DIR)/$(AFTER)"), env("AFTER", "y")}
	injected := injectInto(t, fixture.Pod(app), fixture.SidecarSet("s", fixture.Sidecar("side", sharing)))
	assert.Equal(t, []corev1.EnvVar{env("IS_INJECTED", "true"), env("POD", "web-1"), env("DIR", "/logs/$(POD)/$(DIR)/$(AFTER)")}, injected.Spec.Containers[0].Env)
}

// Each value references the previous variable twice, so the expanded value doubles with each variable.
func TestSpec4_15_NoVariablesOfAPodStallInjection(t *testing.T) {
	app := fixture.Container("app")
	app.Env = []corev1.EnvVar{env("V0", "x")}
	for i := range 200 {
		app.Env = append(app.Env, env(fmt.Sprintf("V%d", i+1), fmt.Sprintf("$(V%d)$(V%d)", i, i)))
	}
	app.VolumeMounts = []corev1.VolumeMount{{Name: "logs", MountPath: "/logs", SubPathExpr: "$(V200)"}}
	injected := injectInto(t, fixture.Pod(app), fixture.SidecarSet("s", fixture.Sidecar("side", sharing)))
	assert.Len(t, injected.Spec.Containers[0].Env, 202)
}

// The kubelet expands a value only with earlier variables.
func TestSpec4_6_ACopiedVariableComesAfterTheVariablesThatItReferences(t *testing.T) {
	app := fixture.Container("app")
	app.Env = []corev1.EnvVar{env("POD_NS", "shop"), env("LOG_DIR", "$(POD_NS)/logs"), env("BEFORE", "$(LATE)"), env("LATE", "x")}
	app.VolumeMounts = []corev1.VolumeMount{{Name: "logs", MountPath: "/logs", SubPathExpr: "$(LOG_DIR)"}}
	for name, wanted := range map[string][]string{"only the directory": {"LOG_DIR"}, "all, sorted by name": {"LOG_DIR", "POD_NS"}} {
		side := fixture.Sidecar("side", sharing)
		side.TransferEnv = []v1alpha1.TransferEnvVar{{SourceContainerName: "app", EnvNames: wanted}}
		injected := injectInto(t, fixture.Pod(app), fixture.SidecarSet("s", side))
		assert.Equal(t, []corev1.EnvVar{env("IS_INJECTED", "true"), env("POD_NS", "shop"), env("LOG_DIR", "$(POD_NS)/logs")}, injected.Spec.Containers[0].Env, name)
	}
	side := fixture.Sidecar("side")
	side.TransferEnv = []v1alpha1.TransferEnvVar{{SourceContainerName: "app", EnvNames: []string{"BEFORE", "LATE"}}}
	injected := injectInto(t, fixture.Pod(app), fixture.SidecarSet("s", side))
	assert.Equal(t, []corev1.EnvVar{env("IS_INJECTED", "true"), env("BEFORE", "$(LATE)"), env("LATE", "x")}, injected.Spec.Containers[0].Env, "the app container does not expand the value either")
}

// The variable that a value references may be copied from another app container.
func TestSpec4_6_TheOrderOfReferencesAppliesAcrossContainers(t *testing.T) {
	first, second := fixture.Container("app"), fixture.Container("app2")
	first.Env = []corev1.EnvVar{env("POD", "web-1")}
	first.VolumeMounts = []corev1.VolumeMount{{Name: "a", MountPath: "/a", SubPathExpr: "$(POD)"}}
	second.Env = []corev1.EnvVar{env("POD", "web-1"), env("DIR", "$(POD)/x")}
	second.VolumeMounts = []corev1.VolumeMount{{Name: "b", MountPath: "/b", SubPathExpr: "$(DIR)"}}
	side := fixture.Sidecar("side", sharing)
	side.TransferEnv = []v1alpha1.TransferEnvVar{{SourceContainerName: "app2", EnvName: "DIR"}}
	injected := injectInto(t, fixture.Pod(first, second), fixture.SidecarSet("s", side))
	assert.Equal(t, []corev1.EnvVar{env("IS_INJECTED", "true"), env("POD", "web-1"), env("DIR", "$(POD)/x")}, injected.Spec.Containers[0].Env)
}

// The subPathExpr of each mount references all variables, directly or through other variables.
func TestSpec4_15_NoMountsOfAPodStallInjection(t *testing.T) {
	app := fixture.Container("app")
	app.Env = []corev1.EnvVar{env("V0", "x")}
	for i := range 50_000 {
		app.Env = append(app.Env, env(fmt.Sprintf("V%d", i+1), fmt.Sprintf("$(V%d)", i)))
		app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: "logs", MountPath: fmt.Sprintf("/logs/%d", i), SubPathExpr: "$(V50000)"})
	}
	variables := references{of: &app}
	assert.Len(t, variables.referencedBy("$(V50000)", nil), 50_001)
	assert.Empty(t, variables.referencedBy("$(V50000)", nil))
	for i := range 50_000 {
		app.VolumeDevices = append(app.VolumeDevices, corev1.VolumeDevice{Name: fmt.Sprintf("d%d", i), DevicePath: fmt.Sprintf("/dev/%d", i)})
	}
	injected := injectInto(t, fixture.Pod(app), fixture.SidecarSet("s", fixture.Sidecar("side", sharing)))
	assert.Len(t, injected.Spec.Containers[0].Env, 50_002)
	assert.Len(t, injected.Spec.Containers[0].VolumeMounts, 50_000)
	assert.Len(t, injected.Spec.Containers[0].VolumeDevices, 50_000)
}

// Kubernetes permits Bidirectional mounts only in privileged containers.
func TestSpec4_5_ASharedBidirectionalMountNeedsAPrivilegedSidecar(t *testing.T) {
	both, toContainer := corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer
	app := fixture.Container("app")
	app.VolumeMounts = []corev1.VolumeMount{{Name: "fuse", MountPath: "/mnt", MountPropagation: &both}}
	for name, want := range map[string]corev1.MountPropagationMode{"plain": toContainer, "privileged": both} {
		side := fixture.Sidecar("side", sharing)
		if name == "privileged" {
			side.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}
		injected := injectInto(t, fixture.Pod(app), fixture.SidecarSet("s", side))
		assert.Equal(t, want, *injected.Spec.Containers[0].VolumeMounts[0].MountPropagation, name)
		assert.Equal(t, both, *injected.Spec.Containers[1].VolumeMounts[0].MountPropagation, "the app container does not change")
	}
}

// Without a container name, a resourceFieldRef refers to the container that has the variable.
func TestSpec4_6_ACopiedResourceFieldRefNamesTheAppContainer(t *testing.T) {
	app := fixture.Container("app")
	limit := func(container string) corev1.EnvVar {
		return corev1.EnvVar{Name: "MEM", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: container, Resource: "limits.memory"}}}
	}
	app.Env = []corev1.EnvVar{limit("")}
	side := fixture.Sidecar("side")
	side.TransferEnv = []v1alpha1.TransferEnvVar{{SourceContainerName: "app", EnvName: "MEM"}}
	pod := fixture.Pod(app)
	injected := injectInto(t, pod, fixture.SidecarSet("s", side))
	assert.Equal(t, "app", injected.Spec.Containers[0].Env[1].ValueFrom.ResourceFieldRef.ContainerName)
	assert.Empty(t, injected.Spec.Containers[1].Env[0].ValueFrom.ResourceFieldRef.ContainerName, "the app container does not change")
}

// Kubernetes rejects two devices of one volume in a container.
func TestSpec4_5_OneDeviceOfAVolumeIsShared(t *testing.T) {
	first, second := fixture.Container("app"), fixture.Container("app2")
	first.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/a"}}
	second.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/b"}}
	side := fixture.Sidecar("side")
	side.ShareVolumeDevicePolicy = &v1alpha1.ShareVolumePolicy{Type: v1alpha1.ShareVolumePolicyEnabled}
	injected := injectInto(t, fixture.Pod(first, second), fixture.SidecarSet("s", side))
	assert.Equal(t, first.VolumeDevices, injected.Spec.Containers[0].VolumeDevices)

	// A container cannot use one path or one volume both as a mount and as a device.
	first.VolumeDevices, first.VolumeMounts = nil, []corev1.VolumeMount{{Name: "files", MountPath: "/data"}}
	second.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/data"}, {Name: "own", DevicePath: "/dev/own"}}
	side.ShareVolumePolicy.Type = v1alpha1.ShareVolumePolicyEnabled
	side.VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: "/own"}}
	injected = injectInto(t, fixture.Pod(first, second), fixture.SidecarSet("s", side))
	assert.Equal(t, []corev1.VolumeMount{side.VolumeMounts[0], first.VolumeMounts[0]}, injected.Spec.Containers[0].VolumeMounts)
	assert.Empty(t, injected.Spec.Containers[0].VolumeDevices)
	side.VolumeMounts, side.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "raw", DevicePath: "/data"}}
	injected = injectInto(t, fixture.Pod(first), fixture.SidecarSet("s", side))
	assert.Empty(t, injected.Spec.Containers[0].VolumeMounts)
}

// Variables in envFrom of the app container are not copied to the sidecar. The kubelet would not start the
// sidecar if a variable of a subPathExpr were missing.
func TestSpec4_5_AMountWithAVariableThatTheSidecarCannotGetIsNotShared(t *testing.T) {
	app := fixture.Container("app")
	app.Env = []corev1.EnvVar{env("POD", "web-1")}
	app.VolumeMounts = []corev1.VolumeMount{
		{Name: "logs", MountPath: "/logs", SubPathExpr: "$(POD)"},
		{Name: "data", MountPath: "/data", SubPathExpr: "$(POD)/$(CELL)"},
		{Name: "data", MountPath: "/more", SubPathExpr: "$(ZONE)"},
		{Name: "price", MountPath: "/price", SubPathExpr: "$$(CELL)"},
	}
	app.Env = append(app.Env, env("LOG_DIR", "$(CELL)/$(POD)"), env("PLAIN", "$$(CELL)/$(POD)"))
	app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/indirect", SubPathExpr: "$(LOG_DIR)"},
		corev1.VolumeMount{Name: "data", MountPath: "/plain", SubPathExpr: "$(PLAIN)"})
	app.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cell"}}}}
	for name, c := range map[string]struct {
		sidecar  sidecarOption
		want     []corev1.VolumeMount
		warnings int
	}{
		"no variable": {func(*v1alpha1.SidecarContainer) {}, []corev1.VolumeMount{app.VolumeMounts[0], app.VolumeMounts[3], app.VolumeMounts[5]}, 1},
		"own variables": {func(s *v1alpha1.SidecarContainer) { s.Env = []corev1.EnvVar{env("CELL", "7"), env("ZONE", "b")} },
			app.VolumeMounts, 0},
		"own value": {func(s *v1alpha1.SidecarContainer) { s.Env = []corev1.EnvVar{env("LOG_DIR", "/var/log")} },
			[]corev1.VolumeMount{app.VolumeMounts[0], app.VolumeMounts[3], app.VolumeMounts[4], app.VolumeMounts[5]}, 1},
		"own envFrom": {func(s *v1alpha1.SidecarContainer) { s.EnvFrom = app.EnvFrom }, app.VolumeMounts, 0},
	} {
		t.Run(name, func(t *testing.T) {
			set := fixture.SidecarSet("s", fixture.Sidecar("side", sharing, c.sidecar))
			assert.Equal(t, c.want, injectInto(t, fixture.Pod(app), set).Spec.Containers[0].VolumeMounts)
			injection, err := Pod(fixture.Pod(app), prepareAll(t, set), noon)
			require.NoError(t, err)
			require.Len(t, injection.Warnings(), c.warnings)
			if c.warnings > 0 {
				assert.Equal(t, "container app: sidecar side does not get mounts such as /data, because variable CELL of the subPathExpr is not in env of the container",
					injection.Warnings()[0])
			}
		})
	}
}

// A variable has only one value in the sidecar. With this value, mounts of another container would contain the
// wrong directory.
func TestSpec4_5_AMountWithAVariableOfAnotherValueIsNotShared(t *testing.T) {
	container := func(name, cell string) corev1.Container {
		app := fixture.Container(name)
		app.Env = []corev1.EnvVar{env("CELL", cell), env("DIR", "$(CELL)/x")}
		app.VolumeMounts = []corev1.VolumeMount{{Name: "logs", MountPath: "/" + name, SubPathExpr: "$(CELL)"}, {Name: "logs", MountPath: "/dir/" + name, SubPathExpr: "$(DIR)"}}
		return app
	}
	first, same, other := container("first", "a"), container("same", "a"), container("other", "b")
	set := fixture.SidecarSet("s", fixture.Sidecar("side", sharing))
	injection, err := Pod(fixture.Pod(first, same, other), prepareAll(t, set), noon)
	require.NoError(t, err)
	assert.Equal(t, []string{"container other: sidecar side does not get mounts such as /other, because the sidecar gets another value of variable CELL of the subPathExpr"}, injection.Warnings())
	side := injectInto(t, fixture.Pod(first, same, other), set).Spec.Containers[0]
	assert.Equal(t, slices.Concat(first.VolumeMounts, same.VolumeMounts), side.VolumeMounts)

	set.Spec.Containers[0].TransferEnv = []v1alpha1.TransferEnvVar{{SourceContainerName: "other", EnvName: "CELL"}}
	assert.Equal(t, other.VolumeMounts, injectInto(t, fixture.Pod(first, same, other), set).Spec.Containers[0].VolumeMounts)
	set.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{Prefix: "x"}}
	first.VolumeMounts[0].SubPathExpr = "$(ELSEWHERE)/$(CELL)"
	assert.Equal(t, other.VolumeMounts, injectInto(t, fixture.Pod(first, same, other), set).Spec.Containers[0].VolumeMounts)
}

func TestSpec4_5_AVariableThatIsDefinedTwiceHasOneValue(t *testing.T) {
	app := fixture.Container("app")
	app.Env = []corev1.EnvVar{env("B", "1"), env("A", "$(B)"), env("B", "2")}
	app.VolumeMounts = []corev1.VolumeMount{
		{Name: "v", MountPath: "/a", SubPathExpr: "$(A)/$(NOPE)"}, {Name: "v", MountPath: "/b", SubPathExpr: "$(B)"}, {Name: "v", MountPath: "/c", SubPathExpr: "$(A)"},
	}
	assert.Equal(t, app.VolumeMounts[1:2], injectInto(t, fixture.Pod(app), fixture.SidecarSet("s", fixture.Sidecar("side", sharing))).Spec.Containers[0].VolumeMounts)
}

// The sidecar defines LOG_DIR itself, so the sidecar does not need the variables in the value of the app
// container.
func TestSpec4_5_VariablesOfAReplacedValueAreNotShared(t *testing.T) {
	app := fixture.Container("app")
	app.Env = []corev1.EnvVar{env("TOKEN", "secret"), env("LOG_DIR", "$(TOKEN)/logs")}
	app.VolumeMounts = []corev1.VolumeMount{{Name: "logs", MountPath: "/logs", SubPathExpr: "$(LOG_DIR)"}}
	side := fixture.Sidecar("side", sharing, func(s *v1alpha1.SidecarContainer) { s.Env = []corev1.EnvVar{env("LOG_DIR", "/var/log")} })
	injected := injectInto(t, fixture.Pod(app), fixture.SidecarSet("s", side)).Spec.Containers[0]
	assert.Equal(t, []corev1.EnvVar{env("LOG_DIR", "/var/log"), env("IS_INJECTED", "true")}, injected.Env)
	assert.Equal(t, app.VolumeMounts, injected.VolumeMounts)
}
