package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube"
)

// testCluster runs commands against the objects of a fake client.
type testCluster struct {
	client.Client
	t *testing.T
}

func newTestCluster(t *testing.T, objects ...client.Object) testCluster {
	t.Helper()
	return newInterceptedCluster(t, interceptor.Funcs{}, objects...)
}

func newInterceptedCluster(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) testCluster {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	return testCluster{fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build(), t}
}

// ran contains the output and the error of a command.
type ran struct {
	out, errOut string
	err         error
}

func (s testCluster) run(args ...string) ran { return s.runWith("", args...) }

func (s testCluster) runWith(stdin string, args ...string) ran {
	s.t.Helper()
	var out, errOut bytes.Buffer
	sh := &shared{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut},
		config:    genericclioptions.NewConfigFlags(true), now: func() time.Time { return noon },
	}
	sh.cluster = func() (*cluster, error) {
		return &cluster{Reader: s.Client, live: s.Client, systemNamespace: sh.systemNamespace, page: pageSize}, nil
	}
	cmd := sh.command()
	// The key directory does not exist, so commands do not wait for Temporal. Suggested commands do not repeat the directory.
	sh.keys.KeyDir = s.t.TempDir() + "/none"
	cmd.SetArgs(append([]string{"--kubeconfig="}, args...))
	err := cmd.ExecuteContext(s.t.Context())
	return ran{out.String(), errOut.String(), err}
}

// shows runs a command, requires that the command succeeds, and returns the output.
func (s testCluster) shows(args ...string) string {
	s.t.Helper()
	got := s.run(args...)
	require.NoError(s.t, got.err, got.out)
	return got.out
}

// read decodes the JSON output of a command.
func read[T any](t *testing.T, out string) (value T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(out), &value), out)
	return value
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// sidecarSet returns a SidecarSet with the defaults and hashes of admission.
func sidecarSet(t *testing.T, name string, change ...func(*v1alpha1.SidecarSet)) *v1alpha1.SidecarSet {
	t.Helper()
	set := fixture.SidecarSet(name, fixture.Sidecar("agent"))
	set.Generation = 1
	for _, one := range change {
		one(set)
	}
	require.NoError(t, revision.Complete(set, nil))
	return set
}

// recordedAs returns a revision with the content of a SidecarSet, but with the given image and custom versions.
func recordedAs(t *testing.T, set *v1alpha1.SidecarSet, number int64, image string, customVersions ...string) *appsv1.ControllerRevision {
	t.Helper()
	of := set.DeepCopy()
	of.Spec.Containers[0].Image, of.Labels = image, nil
	one, err := revision.New(of, v1alpha1.DefaultSystemNamespace, number)
	require.NoError(t, err)
	for _, version := range customVersions {
		of.Labels = map[string]string{v1alpha1.CustomVersionLabel: version}
		revision.MakeLatest(one, of, number)
	}
	return one
}

// plainPod returns a pod that SidecarSets match and that was not injected.
func plainPod(namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := fixture.Pod(fixture.Container("app"))
	pod.Namespace, pod.Name = namespace, name
	for _, one := range change {
		one(pod)
	}
	return pod
}

func TestEachCommandHasAnExample(t *testing.T) {
	var check func(*cobra.Command)
	check = func(parent *cobra.Command) {
		for _, cmd := range parent.Commands() {
			if cmd.Name() == "completion" {
				continue // cobra writes the help of completion.
			}
			if cmd.HasSubCommands() {
				check(cmd)
				continue
			}
			for _, line := range strings.Split(cmd.Example, "\n") {
				assert.True(t, strings.HasPrefix(line, "  "+cmd.CommandPath()), "%s: %q", cmd.Name(), line)
			}
		}
	}
	check(NewCommand(genericiooptions.NewTestIOStreamsDiscard()))
}
