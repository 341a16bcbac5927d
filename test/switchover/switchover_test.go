package switchover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube"
)

const (
	bin       = "../../bin"
	namespace = "apps"
)

// scene is a cluster of its own.
type scene struct {
	t       *testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	client  client.Client
	// dir is where commands run.
	dir string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir(), Nodes: 2})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	config, err := c.RESTConfig()
	require.NoError(t, err)
	config.QPS, config.Burst = 500, 1000
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	require.NoError(t, admissionregistrationv1.AddToScheme(scheme))
	direct, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	s := &scene{t: t, ctx: ctx, cluster: c, client: direct, dir: t.TempDir()}
	require.NoError(t, direct.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	s.await("the service account", func() error {
		return direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
	})
	return s
}

func (s *scene) await(what string, done func() error) {
	s.t.Helper()
	var cause error
	err := wait.PollUntilContextCancel(s.ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		cause = done()
		return cause == nil, nil
	})
	require.NoError(s.t, err, "wait for %s: %v", what, cause)
}

func (s *scene) pods() []corev1.Pod {
	s.t.Helper()
	list := &corev1.PodList{}
	require.NoError(s.t, s.client.List(s.ctx, list, client.InNamespace(namespace)))
	return list.Items
}

// awaitReady waits for all pods: from then on nobody has a reason to write them.
func (s *scene) awaitReady() {
	s.t.Helper()
	s.await("all pods to be ready", func() error {
		waiting := 0
		pods := s.pods()
		for i := range pods {
			if !ready(&pods[i]) {
				waiting++
			}
		}
		if waiting > 0 {
			return fmt.Errorf("%d of %d pods are not ready", waiting, len(pods))
		}
		return nil
	})
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// versions are those of all pods: whoever writes one changes it.
func (s *scene) versions() map[string]string {
	s.t.Helper()
	versions := map[string]string{}
	for _, pod := range s.pods() {
		versions[pod.Name] = pod.ResourceVersion
	}
	return versions
}

// awaitComplete waits until status says of each set that all of its pods are updated and
// ready, and that the rollout is over.
func (s *scene) awaitComplete() {
	s.t.Helper()
	for _, f := range fleets() {
		s.await("the rollout of "+f.name, func() error {
			set := &v1alpha1.SidecarSet{}
			if err := s.client.Get(s.ctx, client.ObjectKey{Name: f.name}, set); err != nil {
				return err
			}
			st, n := set.Status, int32(f.pods)
			if st.ObservedGeneration != set.Generation || st.MatchedPods != n || st.UpdatedPods != n || st.UpdatedReadyPods != n {
				return fmt.Errorf("generation %d, status %+v", set.Generation, st)
			}
			for _, condition := range st.Conditions {
				if condition.Reason == v1alpha1.ReasonRolloutComplete {
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", st.Conditions)
		})
	}
}

// check runs outrigger migrate check, which is to find nothing in the way.
func (s *scene) check(args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.ctx, filepath.Join(bin, "outrigger"), append([]string{"migrate", "check", "--kubeconfig=" + s.cluster.Kubeconfig}, args...)...)
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	require.NoError(s.t, cmd.Run(), "%s%s", &out, &failure)
	return out.String()
}

// shell runs what the report or docs/migration.md says.
func (s *scene) shell(command string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.ctx, "sh", "-c", command)
	path, err := filepath.Abs(bin)
	require.NoError(s.t, err)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig, "PATH="+path+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s: %s", command, out)
}

// documented runs what docs/migration.md says, word by word.
func (s *scene) documented(commands ...string) {
	s.t.Helper()
	guide, err := os.ReadFile("../../docs/migration.md")
	require.NoError(s.t, err)
	for _, command := range commands {
		require.Contains(s.t, string(guide), command+"\n")
		s.shell(command)
	}
}

func (s *scene) golden(file, got string) {
	s.t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(s.t, err)
	assert.Equal(s.t, string(want), got, file)
}

// creating creates pods in dry runs, one after the other, until the returned function is
// called: each must be injected, and nothing twice. They see what a pod sees.
func (s *scene) creating() (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	broken, created := make(chan error, 1), 0
	go func() {
		defer close(broken)
		pace := time.NewTicker(50 * time.Millisecond)
		defer pace.Stop()
		for ; ctx.Err() == nil; <-pace.C {
			if err := s.injectedOnce(ctx); err != nil && ctx.Err() == nil {
				broken <- fmt.Errorf("after %d pods: %w", created, err)
				return
			}
			created++
		}
	}()
	return func() {
		s.t.Helper()
		cancel()
		require.NoError(s.t, <-broken)
		require.Positive(s.t, created)
		s.t.Log(created, "pods were tried")
	}
}

func (s *scene) injectedOnce(ctx context.Context) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "new-", Labels: map[string]string{"app": "hot"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
	if err := s.client.Create(ctx, pod, client.DryRunAll); err != nil {
		return err
	}
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	if got := strings.Join(names, ","); got != "envoy-1,envoy-2,app" || pod.Annotations[v1alpha1.InjectedListAnnotation] != "hot" {
		return fmt.Errorf("containers %s, annotations %v", got, pod.Annotations)
	}
	return nil
}

func (s *scene) upgrade() {
	s.t.Helper()
	for _, f := range fleets() {
		set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: f.name}}
		patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, f.upgraded)
		require.NoError(s.t, s.client.Patch(s.ctx, set, client.RawPatch(types.JSONPatchType, patch)))
	}
}

// remedies are the commands of the report that narrow OpenKruise's configurations.
func (s *scene) remedies() (commands []string) {
	s.t.Helper()
	var report struct {
		Findings []struct{ Effect, Remedy string }
	}
	require.NoError(s.t, json.Unmarshal([]byte(s.check("-o", "json")), &report))
	for _, f := range report.Findings {
		if f.Effect == "differs" && f.Remedy != "" {
			commands = append(commands, f.Remedy)
		}
	}
	return commands
}

// A cluster is taken over, upgraded, and given back.
func TestThereAndBack(t *testing.T) {
	s := newScene(t)
	for _, f := range fleets() {
		s.store(&f)
	}
	kruise := s.startOpenKruise()
	kruise.install()
	s.awaitReady()

	s.golden("before.txt", s.check())
	before := s.versions()
	require.Len(t, before, 1000)
	stop := s.creating()
	s.there(kruise)
	assert.Equal(t, before, s.versions(), "no pod is written for the switch")
	stop()

	s.upgrade()
	s.awaitComplete()
	s.golden("after.txt", s.check())
	s.upgradedAsTheyWould()

	s.awaitReady()
	upgraded := s.versions()
	stop = s.creating()
	s.back(kruise)
	stop()
	assert.Equal(t, upgraded, s.versions(), "no pod is written for the way back")
	s.golden("before.txt", s.check())
	s.blocked()
}

// blocked is what a script sees of a set that the switch would upgrade.
func (s *scene) blocked() {
	s.t.Helper()
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "cold"}}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"another"}}}`, v1alpha1.HashAnnotation)
	require.NoError(s.t, s.client.Patch(s.ctx, set, client.RawPatch(types.MergePatchType, patch)))
	cmd := exec.CommandContext(s.ctx, filepath.Join(bin, "outrigger"), "migrate", "check", "--kubeconfig="+s.cluster.Kubeconfig, "-o", "yaml")
	out, err := cmd.Output()
	var exit *exec.ExitError
	require.ErrorAs(s.t, err, &exit)
	assert.Equal(s.t, 1, exit.ExitCode())
	assert.Equal(s.t, "outrigger: not ready to switch: 1 thing is in the way.\n", string(exit.Stderr))
	assert.Contains(s.t, string(out), "findings:\n- effect: blocks\n  message: Annotation kruise.io/sidecarset-hash is another, ")
}

// there follows docs/migration.md.
func (s *scene) there(kruise *openKruise) {
	s.t.Helper()
	s.documented(
		"kubectl get mutatingwebhookconfiguration kruise-mutating-webhook-configuration -o yaml | grep -v '^  resourceVersion:' > mutating.yaml",
		"kubectl get validatingwebhookconfiguration kruise-validating-webhook-configuration -o yaml | grep -v '^  resourceVersion:' > validating.yaml",
		"kubectl get crd sidecarsets.apps.kruise.io -o yaml | grep -v '^  resourceVersion:' > crd.yaml",
	)
	_, err := s.cluster.StartRole(s.ctx, cluster.Webhook)
	require.NoError(s.t, err)
	s.await("Outrigger to be asked", func() error {
		if strings.Contains(s.check(), "Webhook mpod.kb.io answers beside Outrigger's") {
			return nil
		}
		return errors.New("not yet")
	})
	commands := s.remedies()
	require.Len(s.t, commands, 2)
	s.documented("kubectl scale -n kruise-system deployment kruise-controller-manager --replicas=0")
	kruise.stopped.Store(true)
	for _, command := range commands {
		s.shell(command)
	}
	for _, role := range []string{cluster.Operator, cluster.Worker} {
		_, err := s.cluster.StartRole(s.ctx, role)
		require.NoError(s.t, err)
	}
	s.awaitComplete()
}

// back is the other direction.
func (s *scene) back(kruise *openKruise) {
	s.t.Helper()
	for _, role := range []string{cluster.Operator, cluster.Worker} {
		require.NoError(s.t, s.cluster.Stop(role))
	}
	kruise.stopped.Store(false)
	s.documented(
		"kubectl scale -n kruise-system deployment kruise-controller-manager --replicas=1",
		"kubectl rollout status -n kruise-system deployment kruise-controller-manager",
		"kubectl replace -f mutating.yaml -f validating.yaml",
		"kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration outrigger",
	)
	require.NoError(s.t, s.cluster.Stop(cluster.Webhook))
	s.documented("kubectl replace -f crd.yaml")

	require.NoError(s.t, s.injectedOnce(s.ctx))
	beta := &unstructured.UnstructuredList{}
	beta.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SidecarSetList"))
	beta.SetAPIVersion("apps.kruise.io/v1beta1")
	s.await("both versions to be served", func() error { return s.client.List(s.ctx, beta) })
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "cold"}}
	require.NoError(s.t, s.client.Patch(s.ctx, set, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"edited":"yes"}}}`))))
}

// upgradedAsTheyWould compares upgraded pods with what OpenKruise writes.
func (s *scene) upgradedAsTheyWould() {
	s.t.Helper()
	byFleet := map[string][]corev1.Pod{}
	for _, pod := range s.pods() {
		byFleet[pod.Labels["app"]] = append(byFleet[pod.Labels["app"]], pod)
	}
	for _, f := range fleets() {
		set := &v1alpha1.SidecarSet{}
		require.NoError(s.t, s.client.Get(s.ctx, client.ObjectKey{Name: f.name}, set))
		if f.hash != "" {
			require.Equal(s.t, f.hash, set.Annotations[v1alpha1.HashAnnotation], "what OpenKruise recorded of these containers")
		}
		require.Len(s.t, byFleet[f.name], f.pods)
		recorded, was := s.read(&f)
		for i := range byFleet[f.name] {
			s.upgradedAsTheyWouldOne(&f, recorded, was, set, &byFleet[f.name][i])
		}
	}
}

// theirEntry and theirState are all that OpenKruise reads and writes.
type theirEntry struct {
	UpdateTimestamp    time.Time `json:"updateTimestamp"`
	Hash               string    `json:"hash"`
	SidecarSetName     string    `json:"sidecarSetName"`
	SidecarList        []string  `json:"sidecarList"`
	ControllerRevision string    `json:"controllerRevision,omitempty"`
}

type theirState struct {
	Revision              string    `json:"revision"`
	UpdateTimestamp       time.Time `json:"updateTimestamp"`
	LastContainerStatuses map[string]struct {
		ImageID string `json:"imageID"`
		// RestartCount is ours beside it: an unknown field is skipped.
		RestartCount *int32 `json:"restartCount"`
	} `json:"lastContainerStatuses"`
}

func (s *scene) upgradedAsTheyWouldOne(f *fleet, recorded *v1alpha1.SidecarSet, was *recordedPod, set *v1alpha1.SidecarSet, pod *corev1.Pod) {
	s.t.Helper()
	hashes, blank := s.entries(pod.Annotations[v1alpha1.HashAnnotation]), s.entries(pod.Annotations[v1alpha1.HashWithoutImageAnnotation])
	require.Equal(s.t, set.Annotations[v1alpha1.HashAnnotation], hashes[f.name].Hash)
	require.Equal(s.t, set.Status.LatestRevision, hashes[f.name].ControllerRevision)
	require.Equal(s.t, recorded.Annotations[v1alpha1.HashWithoutImageAnnotation], blank[f.name].Hash, "only images differ")
	for _, entry := range []theirEntry{hashes[f.name], blank[f.name]} {
		require.Equal(s.t, f.name, entry.SidecarSetName)
		require.Equal(s.t, []string{set.Spec.Containers[0].Name}, entry.SidecarList)
	}
	var states map[string]theirState
	strictly(s.t, pod.Annotations[v1alpha1.InPlaceUpdateStateAnnotation], &states)
	require.Len(s.t, states, 1)
	require.Equal(s.t, hashes[f.name].Hash, states[f.name].Revision)
	upgraded := f.container
	if f.standby != "" {
		upgraded = f.standby
		require.JSONEq(s.t, fmt.Sprintf(`{"envoy":%q}`, f.standby), pod.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation])
		require.Equal(s.t, "0", pod.Annotations[v1alpha1.VersionAnnotationPrefix+f.container], "the other twin is emptied")
	} else {
		require.Equal(s.t, "sim://"+recorded.Spec.Containers[0].Image, states[f.name].LastContainerStatuses[upgraded].ImageID)
	}
	for i := range was.Containers {
		want := was.Containers[i].Image
		switch was.Containers[i].Name {
		case upgraded:
			want = f.upgraded
		case f.container:
			want = "empty:1"
		}
		require.Equal(s.t, want, pod.Spec.Containers[i].Image, "%s of %s", was.Containers[i].Name, pod.Name)
	}
}

func (s *scene) entries(value string) (entries map[string]theirEntry) {
	s.t.Helper()
	strictly(s.t, value, &entries)
	require.Len(s.t, entries, 1)
	return entries
}

func strictly(t *testing.T, text string, into any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(into), text)
	require.ErrorIs(t, decoder.Decode(&struct{}{}), io.EOF)
}
