package defaults

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestSpec1_DefaultsOfASet(t *testing.T) {
	for written, want := range map[string]string{
		`{}`: `{updateStrategy: {type: RollingUpdate, partition: 0, maxUnavailable: 1}, injectionStrategy: {}, revisionHistoryLimit: 10}`,
		`{updateStrategy: {type: NotUpdate, partition: 10%, maxUnavailable: 0}, revisionHistoryLimit: 0}`: `
{updateStrategy: {type: NotUpdate, partition: 10%, maxUnavailable: 0}, injectionStrategy: {}, revisionHistoryLimit: 0}`,
		`{injectionStrategy: {revision: {customVersion: v}}, patchPodMetadata: [{annotations: {a: b}}], namespace: web}`: `
namespace: web
updateStrategy: {type: RollingUpdate, partition: 0, maxUnavailable: 1}
revisionHistoryLimit: 10
injectionStrategy: {revision: {customVersion: v, policy: Always}}
patchPodMetadata: [{annotations: {a: b}, patchPolicy: Retain}]`,
		`
volumes:
- {name: none}
- {name: path, hostPath: {path: /x}}
- {name: secret, secret: {secretName: s}}
- {name: map, configMap: {name: c, defaultMode: 0400}}
- {name: api, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: b}}]}}
- {name: all, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: a, fieldRef: {fieldPath: b}}]}}]}}`: `
updateStrategy: {type: RollingUpdate, partition: 0, maxUnavailable: 1}
revisionHistoryLimit: 10
injectionStrategy: {}
volumes:
- {name: none, emptyDir: {}}
- {name: path, hostPath: {path: /x, type: ""}}
- {name: secret, secret: {secretName: s, defaultMode: 0644}}
- {name: map, configMap: {name: c, defaultMode: 0400}}
- {name: api, downwardAPI: {defaultMode: 0644, items: [{path: a, fieldRef: {apiVersion: v1, fieldPath: b}}]}}
- {name: all, projected: {defaultMode: 0644, sources: [{serviceAccountToken: {path: t, expirationSeconds: 3600}}, {downwardAPI: {items: [{path: a, fieldRef: {apiVersion: v1, fieldPath: b}}]}}]}}`,
	} {
		set := read(t, "spec: "+indented(written))
		Write(set)
		assertSpec(t, want, set)
	}
}

func read(t *testing.T, text string) *v1alpha1.SidecarSet {
	t.Helper()
	set := &v1alpha1.SidecarSet{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), set), text)
	return set
}

// indented returns a YAML document as JSON, which can be a value within another YAML document.
func indented(text string) string {
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(err)
	}
	return string(encoded)
}

func assertSpec(t *testing.T, want string, set *v1alpha1.SidecarSet) {
	t.Helper()
	got, err := json.Marshal(set.Spec)
	require.NoError(t, err)
	assert.JSONEq(t, indented(want), string(got))
}

func TestSpec1_DefaultsOfAContainer(t *testing.T) {
	const ending = `terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, podInjectPolicy: BeforeAppContainer, shareVolumePolicy: {type: disabled}`
	for written, want := range map[string]string{
		`{name: a, image: b:1}`: `{name: a, image: "b:1", imagePullPolicy: IfNotPresent, resources: {}, upgradeStrategy: {upgradeType: ColdUpgrade}, ` + ending + `}`,
		`{name: a, image: b:1, imagePullPolicy: Never, resources: {requests: {cpu: 1.5m, memory: 1000Mi}}, shareVolumeDevicePolicy: {}}`: `
{name: a, image: "b:1", imagePullPolicy: Never, resources: {requests: {cpu: 2m, memory: 1000Mi}}, shareVolumeDevicePolicy: {type: disabled}, upgradeStrategy: {upgradeType: ColdUpgrade}, ` + ending + `}`,
		`
name: a
image: b:1
ports: [{containerPort: 1}, {containerPort: 2, protocol: UDP}]
env: [{name: e, valueFrom: {fieldRef: {fieldPath: f}}}, {name: s, valueFrom: {secretKeyRef: {name: s, key: k}}}]
transferEnv: [{envName: e, sourceContainerNameFrom: {fieldRef: {fieldPath: f}}}]
livenessProbe: {httpGet: {port: 1}}
readinessProbe: {grpc: {port: 1}}
startupProbe: {exec: {}, failureThreshold: 30}
lifecycle: {postStart: {httpGet: {port: 1}}, preStop: {httpGet: {port: 1, path: /x, scheme: HTTPS}}}
upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}
resourcesPolicy: {targetContainersMode: max}`: `
{name: a, image: "b:1", imagePullPolicy: IfNotPresent, resources: {}, ` + ending + `,
ports: [{containerPort: 1, protocol: TCP}, {containerPort: 2, protocol: UDP}],
env: [{name: e, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: f}}}, {name: s, valueFrom: {secretKeyRef: {name: s, key: k}}}],
transferEnv: [{envName: e, sourceContainerNameFrom: {fieldRef: {apiVersion: v1, fieldPath: f}}}],
livenessProbe: {httpGet: {port: 1, path: /, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3},
readinessProbe: {grpc: {port: 1, service: null}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3},
startupProbe: {exec: {}, failureThreshold: 30},
lifecycle: {postStart: {httpGet: {port: 1, path: /, scheme: HTTP}}, preStop: {httpGet: {port: 1, path: /x, scheme: HTTPS}}},
upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e},
resourcesPolicy: {targetContainersMode: max, targetContainersNameRegex: ".*", resourcesExpr: {}}}`,
	} {
		set := read(t, "spec: {containers: ["+indented(written)+"]}")
		Write(set)
		assertSpec(t, `{updateStrategy: {type: RollingUpdate, partition: 0, maxUnavailable: 1}, injectionStrategy: {}, revisionHistoryLimit: 10, containers: [`+want+`]}`, set)
		again := set.DeepCopy()
		Write(again)
		assert.Equal(t, set, again, "defaults are stable")
	}
}

func TestSpec1_ThePullPolicyFollowsTheTag(t *testing.T) {
	for image, want := range map[string]string{
		"busybox": "Always", "busybox:latest": "Always", "busybox:1": "IfNotPresent",
		"host:5000/busybox": "Always", "host:5000/busybox:1": "IfNotPresent", "host:5000/a/b:latest": "Always",
		"busybox@sha256:00": "IfNotPresent", "busybox:latest@sha256:00": "Always", "busybox:1@sha256:00": "IfNotPresent",
	} {
		assert.Equal(t, want, string(pullPolicy(image)), image)
	}
}

// OpenKruise computes hashes without the defaults of startup probes, and without the default service of gRPC
// probes. Kubernetes writes these defaults into pods.
func TestSpec1_ProbesThatStayAsTheyAreWritten(t *testing.T) {
	for _, list := range []string{"containers", "initContainers"} {
		for written, inPods := range map[string]string{
			`startupProbe: {exec: {}}`:                       `startupProbe: {exec: {}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}`,
			`startupProbe: {httpGet: {port: 1}}`:             `startupProbe: {httpGet: {port: 1, path: /, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}`,
			`startupProbe: {grpc: {port: 1}}`:                `startupProbe: {grpc: {port: 1, service: ""}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}`,
			`livenessProbe: {grpc: {port: 1}}`:               `livenessProbe: {grpc: {port: 1, service: ""}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}`,
			`readinessProbe: {grpc: {port: 1}}`:              `readinessProbe: {grpc: {port: 1, service: ""}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}`,
			`readinessProbe: {grpc: {port: 1, service: ""}}`: `readinessProbe: {grpc: {port: 1, service: ""}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}`,
		} {
			probes := func(container string) (c v1alpha1.SidecarContainer) {
				set := read(t, "spec: {"+list+": [{name: a, image: b, restartPolicy: Always, "+container+"}]}")
				Write(set)
				return append(set.Spec.Containers, set.Spec.InitContainers...)[0]
			}
			own, filled := probes(written), probes(inPods)
			var plain v1alpha1.SidecarContainer
			require.NoError(t, yaml.Unmarshal([]byte("{"+written+"}"), &plain))
			assert.Equal(t, plain.StartupProbe, own.StartupProbe, written)
			for _, probe := range []*corev1.Probe{own.LivenessProbe, own.ReadinessProbe} {
				if probe != nil {
					assert.Equal(t, int32(3), probe.FailureThreshold, written)
					assert.Equal(t, strings.Contains(written, "service"), probe.GRPC.Service != nil, written)
				}
			}
			before := own.DeepCopy()
			assert.Equal(t, []v1alpha1.SidecarContainer{filled}, PodProbes([]v1alpha1.SidecarContainer{own}), written)
			assert.Equal(t, *before, own, "the given ones stay")
		}
	}
}
