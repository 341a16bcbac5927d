package inject

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/fixture"
)

func TestSpec4_5_VariablesThatVariablesReferenceAreShared(t *testing.T) {
	app := fixture.Container("app")
	app.VolumeMounts = []corev1.VolumeMount{{Name: "logs", MountPath: "/logs", SubPathExpr: "$(DIR)"}}
	app.Env = []corev1.EnvVar{env("POD", "web-1"), env("LATER", "$(DIR)"), env("UNUSED", "x"), env("DIR", "/logs/$(POD)/$(DIR)/$(AFTER)"), env("AFTER", "y")}
	injected := injectInto(t, fixture.Pod(app), fixture.SidecarSet("s", fixture.Sidecar("side", sharing)))
	assert.Equal(t, []corev1.EnvVar{env("IS_INJECTED", "true"), env("POD", "web-1"), env("DIR", "/logs/$(POD)/$(DIR)/$(AFTER)")}, injected.Spec.Containers[0].Env)
}

// Each value references the previous variable twice, so an expansion would double at each variable.
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
