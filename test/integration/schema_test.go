package integration

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// By default, kubectl explains only the newest version.
func TestKubectlExplainsEveryField(t *testing.T) {
	s := newScenario(t, 0, nil)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		var document struct {
			Components struct{ Schemas map[string]described }
		}
		require.NoError(t, json.Unmarshal([]byte(s.kubectl("", "get", "--raw", "/openapi/v3/apis/apps.kruise.io/"+version)), &document))
		set, found := document.Components.Schemas["io.kruise.apps."+version+".SidecarSet"]
		require.True(t, found)
		assert.Empty(t, set.Properties["spec"].silent("spec"), version)
		assert.Empty(t, set.Properties["status"].silent("status"), version)

		explained := s.kubectl("", "explain", "scs.spec", "--recursive", "--api-version=apps.kruise.io/"+version)
		for _, field := range []string{"podInjectPolicy", "hotUpgradeEmptyImage", "tcpSocket", "capabilities", "hostPath", "volumeClaimTemplate"} {
			assert.Contains(t, explained, field+"\t<", version)
		}
		policy := s.kubectl("", "explain", "scs.spec.containers.podInjectPolicy", "--api-version=apps.kruise.io/"+version)
		assert.Regexp(t, `ENUM:\s+BeforeAppContainer\s+AfterAppContainer`, policy)
		assert.Contains(t, policy, "before or after the pod's own")
	}
}

// described is the part of an OpenAPI schema that contains descriptions.
type described struct {
	Description string
	Properties  map[string]described
	Items       *described
}

func (d described) silent(path string) []string {
	var paths []string
	if d.Description == "" {
		paths = append(paths, path)
	}
	fields := d.Properties
	if d.Items != nil {
		fields = d.Items.Properties
	}
	for name, field := range fields {
		paths = append(paths, field.silent(path+"."+name)...)
	}
	return paths
}

func TestManagersShareASet(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			s := newScenario(t, 0, nil)
			name := "shared-" + version
			t.Cleanup(func() { s.cleanly("delete", "scs", name) })
			apply := func(manager, spec string, flags ...string) string {
				manifest := "{apiVersion: apps.kruise.io/" + version + ", kind: SidecarSet, metadata: {name: " + name + "}, spec: " + spec + "}"
				return s.kubectl(manifest, append([]string{"apply", "--server-side", "--field-manager=" + manager, "-f", "-"}, flags...)...)
			}
			show := func(path string) string { return s.kubectl("", "get", "scs", name, "-o", "jsonpath="+path) }

			const base = `{selector: {matchLabels: {app: nobody}}, volumes: [{name: v, emptyDir: {}}], imagePullSecrets: [{name: s}], containers: [
				{name: a, image: "a:IMAGE", fieldOfTheFuture: {x: 1}, env: [{name: A, value: "1"}], volumeMounts: [{name: v, mountPath: /v}]}, {name: b, image: "b:1"}]}`
			apply("owner", strings.Replace(base, "IMAGE", "1", 1))
			apply("tuner", `{volumes: [{name: w, configMap: {name: c}}], imagePullSecrets: [{name: r}], containers: [{name: a, env: [{name: B, value: "2"}],
				volumeMounts: [{name: w, mountPath: /w}], resources: {limits: {cpu: 0.5}}}], updateStrategy: {maxUnavailable: 5%}}`)
			apply("owner", strings.Replace(base, "IMAGE", "2", 1))
			for path, want := range map[string]string{
				"{.spec.containers[*].image}":                     "a:2 b:1",
				"{.spec.containers[0].env[*].name}":               "A B",
				"{.spec.containers[0].volumeMounts[*].mountPath}": "/v /w",
				"{.spec.containers[0].resources.limits.cpu}":      "500m",
				"{.spec.containers[0].fieldOfTheFuture.x}":        "1",
				"{.spec.volumes[*].name}":                         "v w",
				"{.spec.imagePullSecrets[*].name}":                "s r",
				"{.spec.updateStrategy.maxUnavailable}":           "5%",
			} {
				assert.Equal(t, want, show(path), path)
			}
			// Server-side apply removes a field only if the manager that owns the field omits the field.
			apply("tuner", `{containers: [{name: a, env: [{name: B, value: "3"}]}], volumes: [{name: w, configMap: {name: c}}]}`)
			assert.Equal(t, "1 3", show("{.spec.containers[0].env[*].value}"))
			assert.Equal(t, "/v", show("{.spec.containers[0].volumeMounts[*].mountPath}"))
			assert.Equal(t, "{}", show("{.spec.containers[0].resources}"))
			// Two managers that apply different images conflict.
			manifest := "{apiVersion: apps.kruise.io/" + version + ", kind: SidecarSet, metadata: {name: " + name + `}, spec: {containers: [{name: a, image: "a:3"}]}}`
			out, err := kubectl(s.ctx, manifest, "apply", "--server-side", "--field-manager=tuner", "-f", "-")
			require.Error(t, err)
			assert.Contains(t, out, `conflict with "owner": .spec.containers[name="a"].image`)
		})
	}
}

func TestColumnsShowTheProgressOfARollout(t *testing.T) {
	s := newScenario(t, 0, nil)
	s.kubectl("", "patch", "scs", s.name, "--type=merge", "-p", `{"spec":{"updateStrategy":{"maxUnavailable":"10%","partition":3}}}`)
	status := ""
	s.poll("status", func() (bool, error) {
		status = s.kubectl("", "get", "scs", s.name, "-o", "jsonpath={.status.observedGeneration} {.status.conditions[?(@.type=='Progressing')].reason} "+
			"{.status.conditions[?(@.type=='Degraded')].reason} 10% 3 {.status.latestRevision}")
		return strings.HasPrefix(status, "2 RolloutComplete "), nil
	})
	row := strings.Fields(s.kubectl("", "get", "scs", s.name, "-o", "wide", "--no-headers"))
	assert.Equal(t, append([]string{s.name, "0", "0", "0"}, strings.Fields(status)[1:]...), row[:len(row)-1])
	assert.Len(t, row, 10)
	header := s.kubectl("", "get", "scs", s.name)
	assert.Equal(t, []string{"NAME", "MATCHED", "UPDATED", "READY", "AGE"}, strings.Fields(header)[:5])
}
