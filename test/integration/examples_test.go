package integration

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
)

const examples = "../../examples"

// examplePod is the pod with which the examples are tested. The test replaces APP and NAMESPACE.
const examplePod = `
apiVersion: v1
kind: Pod
metadata:
  name: main
  namespace: NAMESPACE
  labels: {app: APP, tier: frontend, cName: main}
  annotations: {cName: main, oom-score: '{"main": 2}', apps.kruise.io/container-launch-priority: Random}
spec:
  automountServiceAccountToken: false
  containers:
  - name: main
    image: main:1
    env: [{name: PROXY_IP, value: 10.0.0.1}, {name: TC, value: a}]
    resources: {limits: {cpu: 400m, memory: 512Mi}, requests: {cpu: 200m, memory: 128Mi}}
    volumeMounts: [{name: data, mountPath: /data}]
    volumeDevices: [{name: disk, devicePath: /dev/disk}]
  volumes:
  - {name: data, emptyDir: {}}
  - {name: disk, persistentVolumeClaim: {claimName: disk}}
`

// These are JSONPath templates for fields of a pod.
const (
	containerNames = `{.spec.containers[*].name}`
	images         = `{.spec.containers[*].image}`
)

// example contains files that are applied in order, and the expected output for a new pod.
type example struct {
	files      []string
	app        string
	show, want string
	// elsewhere is a namespace whose pods do not match.
	elsewhere string
}

func exampleTable() []example {
	return []example{
		{files: []string{"basic/sidecarset.yaml"}, app: "nginx", show: images + ` {.spec.volumes[*].name}`, want: "centos:6.7 main:1 data disk log-volume"},
		{files: []string{"basic/sidecarset.yaml", "basic/update-image.yaml"}, app: "nginx", show: images, want: "centos:7 main:1"},
		{files: []string{"basic/init-container.yaml"}, show: containerNames + ` {.spec.initContainers[*].name}`, want: "nginx main init-container", elsewhere: "default"},
		{files: []string{"basic/namespace-selector.yaml"}, show: containerNames, want: "log-agent main", elsewhere: "default"},
		{files: []string{"basic/namespace-expressions.yaml"}, show: containerNames, want: "log-agent main", elsewhere: "kube-public"},
		{files: []string{"basic/v1beta1.yaml"}, show: containerNames, want: "log-agent main", elsewhere: "default"},

		{
			files: []string{"injection/fields.yaml"},
			show:  containerNames + ` {.spec.containers[0].env[*].name} {.spec.containers[0].volumeMounts[*].mountPath} {.spec.volumes[*].name}`,
			want:  "nginx main IS_INJECTED PROXY_IP TC /nginx/conf data disk nginx-conf",
		},
		{files: []string{"injection/after-app.yaml"}, show: containerNames, want: "main nginx"},
		{files: []string{"injection/share-volumes.yaml"}, show: `{.spec.containers[0].name} {.spec.containers[0].volumeMounts[0].mountPath}`, want: "log-agent /data"},
		{files: []string{"injection/share-devices.yaml"}, show: `{.spec.containers[0].name} {.spec.containers[0].volumeDevices[*].devicePath}`, want: "backup /dev/disk"},
		{files: []string{"injection/transfer-env.yaml"}, show: `{.spec.containers[0].env[*].name}`, want: "IS_INJECTED PROXY_IP TC"},
		{files: []string{"injection/transfer-env-pod-name.yaml"}, show: `{.spec.containers[0].env[*].name}`, want: "IS_INJECTED PROXY_IP"},
		{files: []string{"injection/paused.yaml"}, show: containerNames, want: "main"},
		{files: []string{"injection/image-pull-secrets.yaml"}, show: `{.spec.containers[0].image} {.spec.imagePullSecrets[*].name}`, want: "registry.example.com/log-agent:1.0 my-secret"},
		{
			files: []string{"injection/resources-policy.yaml"},
			show:  `{.spec.containers[0].resources.limits.cpu} {.spec.containers[0].resources.limits.memory} {.spec.containers[0].resources.requests.cpu} {.spec.containers[0].resources.requests.memory}`,
			want:  "200m 192Mi 20m 128Mi",
		},
		{files: []string{"injection/native-sidecar.yaml"}, show: containerNames + ` {.spec.initContainers[*].name} {.spec.initContainers[*].restartPolicy}`, want: "main sidecar Always"},
		{files: []string{"injection/custom-version-1.yaml"}, show: images, want: "log-agent:1.0 main:1"},
		{files: []string{"injection/custom-version-1.yaml", "injection/custom-version-2.yaml"}, show: images, want: "log-agent:1.0 main:1"},
		// This pod belongs to the 90 % of the pods that get the pinned revision.
		{files: []string{"injection/custom-version-1.yaml", "injection/revision-partial.yaml"}, show: images, want: "log-agent:1.0 main:1"},
		{files: []string{"injection/custom-version-1.yaml", "injection/revision-name.yaml"}, show: images, want: "log-agent:1.0 main:1"},

		{files: []string{"update/not-update.yaml"}, show: containerNames, want: "log-agent main"},
		{files: []string{"update/partition.yaml"}, show: containerNames, want: "log-agent main"},
		{files: []string{"update/max-unavailable.yaml"}, show: containerNames, want: "log-agent main"},
		{files: []string{"update/partition-50-window-10.yaml"}, show: containerNames, want: "log-agent main"},
		{files: []string{"update/partition-80-window-30.yaml"}, show: containerNames, want: "log-agent main"},
		{files: []string{"update/paused.yaml"}, show: containerNames, want: "log-agent main"},
		{files: []string{"update/canary.yaml"}, show: containerNames, want: "log-agent main"},
		{files: []string{"update/priority-weight.yaml"}, show: containerNames, want: "log-agent main"},
		{files: []string{"update/priority-order.yaml"}, show: containerNames, want: "log-agent main"},
		{files: []string{"update/scatter.yaml"}, show: containerNames, want: "log-agent main"},

		{
			files: []string{"hot-upgrade.yaml"}, app: "hotupgrade",
			show: images + ` {.spec.containers[*].name} {.metadata.annotations.kruise\.io/sidecarset-working-hotupgrade-container}`,
			want: `openkruise/hotupgrade-sample:sidecarv1 openkruise/hotupgrade-sample:empty main:1 sidecar-1 sidecar-2 main {"sidecar":"sidecar-1"}`,
		},
		{
			files: []string{"pod-metadata/whitelist.yaml", "pod-metadata/sidecarset.yaml"},
			show: `{.metadata.annotations.oom-score} {.metadata.annotations.apps\.kruise\.io/container-launch-priority} ` +
				`{.metadata.annotations.custom\.example\.com/sidecar-configuration}`,
			want: `{"log-agent":1,"main":2} Ordered {"command": "/home/admin/bin/start.sh", "log-level": "3"}`,
		},
	}
}

func TestExamplesBehaveAsDocumented(t *testing.T) {
	s := newScenario(t, 0, nil)
	s.kubectl("", "create", "namespace", "ns-1")
	s.kubectl("", "label", "namespace", "ns-1", "environment=production")
	t.Cleanup(func() { s.cleanly("delete", "namespace", "ns-1") })
	tried := map[string]bool{"basic/pod.yaml": true}
	for _, e := range exampleTable() {
		e.app = cmp.Or(e.app, "sample")
		revision := ""
		for i, file := range e.files {
			tried[file] = true
			if name := s.applyExample(file, revision); name != "" && i+1 < len(e.files) {
				revision = s.latestRevision(name)
			}
		}
		last := e.files[len(e.files)-1]
		s.seesPod(last, e.app, "ns-1", e.show, e.want)
		if e.elsewhere != "" {
			s.seesPod(last, e.app, e.elsewhere, containerNames, "main")
		}
		s.removeExamples(e.files)
	}
	out := s.kubectl("", "create", "-f", examples+"/basic/pod.yaml", "--dry-run=server", "-o", "name")
	assert.Equal(t, "pod/test-pod\n", out)
	for _, file := range exampleFiles(t) {
		assert.True(t, tried[file], "%s is in no test", file)
	}
}

// triedElsewhere returns the directories whose manifests test/documents and test/e2e apply.
func triedElsewhere() []string { return []string{"hot-upgrade", "quick-start", "recipes"} }

// exampleFiles returns the manifests that this test has to apply.
func exampleFiles(t *testing.T) []string {
	var files []string
	require.NoError(t, filepath.WalkDir(examples, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(triedElsewhere(), entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) == ".yaml" {
			file, err := filepath.Rel(examples, path)
			files = append(files, file)
			return err
		}
		return nil
	}))
	return files
}

// applyExample applies a file, and returns the name of the SidecarSet in the file. If the file contains no
// SidecarSet, applyExample returns an empty string.
func (s *scenario) applyExample(file, revision string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, file))
	require.NoError(s.t, err)
	out := s.kubectl(strings.ReplaceAll(string(text), "REVISION", revision), "apply", "-f", "-")
	assert.NotContains(s.t, out, "Warning", file)
	applied, _, _ := strings.Cut(out, " ")
	name, isSet := strings.CutPrefix(applied, "sidecarset.apps.kruise.io/")
	if !isSet {
		return ""
	}
	return name
}

// latestRevision waits for a revision of a SidecarSet, and returns the latest revision. The next file may
// refer to this revision.
func (s *scenario) latestRevision(name string) string {
	s.t.Helper()
	latest := ""
	s.poll("a revision of "+name, func() (bool, error) {
		latest = s.kubectl("", "get", "scs", name, "-o", "jsonpath={.status.latestRevision}")
		return latest != "", nil
	})
	return latest
}

func (s *scenario) removeExamples(files []string) {
	s.t.Helper()
	for _, file := range files {
		s.cleanly("delete", "--ignore-not-found", "-f", filepath.Join(examples, file))
	}
}

// seesPod creates a pod in a dry run until the output is want, because caches observe a SidecarSet with a
// delay. After a timeout, the test fails with the output.
func (s *scenario) seesPod(file, app, namespace, show, want string) {
	s.t.Helper()
	pod := strings.NewReplacer("APP", app, "NAMESPACE", namespace).Replace(examplePod)
	got := ""
	err := wait.PollUntilContextTimeout(s.ctx, 50*time.Millisecond, 15*time.Second, true, func(ctx context.Context) (bool, error) {
		out, err := kubectl(ctx, pod, "create", "-f", "-", "--dry-run=server", "-o", "jsonpath="+show)
		if ctx.Err() == nil {
			got = out
		}
		return err == nil && out == want, nil
	})
	require.NoError(s.t, err, "%s in %s: want %s, got %s", file, namespace, want, got)
}

// kubectl runs kubectl, requires that kubectl succeeds, and returns the output.
func (s *scenario) kubectl(stdin string, args ...string) string {
	s.t.Helper()
	out, err := kubectl(s.ctx, stdin, args...)
	require.NoError(s.t, err, "kubectl %s: %s", strings.Join(args, " "), out)
	return out
}

// cleanly runs kubectl even if the context of the test is cancelled.
func (s *scenario) cleanly(args ...string) {
	s.t.Helper()
	out, err := kubectl(context.WithoutCancel(s.ctx), "", args...)
	assert.NoError(s.t, err, out)
}
