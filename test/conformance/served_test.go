package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	devcluster "github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube"
)

// cacheTimeout limits the wait until the caches contain the changes of the previous steps.
const cacheTimeout = 10 * time.Second

// served executes the steps of a case on an API server with the operator and the webhook.
type served struct {
	t      *testing.T
	client client.Client
	// sets contains the names of the SidecarSets that the case has created.
	sets    []string
	answers []answer
}

// In contrast to TestRecordedCasesAreAnsweredTheSame, the requests pass the schema of the definition, both
// admission webhooks and the defaulting of pods, and the operator creates the revisions.
func TestRecordedCasesAreAnsweredTheSameThroughTheAPIServer(t *testing.T) {
	ctrllog.SetLogger(logr.Discard())
	c, err := devcluster.Start(t.Context(), devcluster.Options{Dir: t.TempDir(), WithoutNodes: true, WithoutTemporal: true})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	for _, role := range []string{devcluster.Operator, devcluster.Webhook} {
		_, err := c.StartRole(t.Context(), role)
		require.NoError(t, err)
	}
	config, err := c.RESTConfig()
	require.NoError(t, err)
	config.QPS, config.Burst = 500, 1000
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	direct, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)

	files, err := filepath.Glob("cases/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	rejected := readRejections(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			s := &served{t: t, client: direct}
			t.Cleanup(s.clean)
			s.replay(file, readAnswers(t, filepath.Join("expected", name+".json")), rejected[name])
		})
	}
}

// replay executes the steps of a case, and compares the result of each step with want. rejected contains the
// recorded rejections of requests that Outrigger admits.
func (s *served) replay(file string, want []answer, rejected map[int]any) {
	raw, err := os.ReadFile(file)
	require.NoError(s.t, err)
	var recorded struct{ Steps []step }
	require.NoError(s.t, yaml.Unmarshal(raw, &recorded))
	at := 0
	for _, one := range recorded.Steps {
		if one.Namespace != nil {
			s.apply(&corev1.Namespace{ObjectMeta: *one.Namespace})
			continue
		}
		if one.ConfigMap != nil {
			s.apply(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: devcluster.SystemNamespace, Name: v1alpha1.ConfigurationName}, Data: one.ConfigMap.Data})
			continue
		}
		require.Less(s.t, at, len(want))
		allowed := want[at]["allowed"] == true
		if fields, ok := rejected[at].([]any); ok && len(fields) == 0 {
			allowed = true
		}
		got := s.answer(one, want[at], allowed)
		if want[at]["allowed"] == true {
			assert.Equal(s.t, want[at], got, "step %d", at)
		} else {
			assert.Equal(s.t, allowed, got["allowed"], "step %d: %v", at, got["message"])
		}
		at++
	}
	require.Len(s.t, want, at)
}

// answer retries a step until the result is equal to the recorded result, because caches observe changes with
// a delay. answer returns the last result.
func (s *served) answer(one step, want answer, allowed bool) answer {
	var got answer
	_ = wait.PollUntilContextTimeout(s.t.Context(), 50*time.Millisecond, cacheTimeout, true, func(ctx context.Context) (bool, error) {
		if one.Pod != nil {
			got = s.pod(ctx, one.Pod)
			return got["allowed"] == allowed && (!allowed || reflect.DeepEqual(want, got)), nil
		}
		_, err := s.write(ctx, one, client.DryRunAll)
		got = answer{"allowed": err == nil, "message": fmt.Sprint(err)}
		return (err == nil) == allowed, nil
	}) // The caller compares the last result.
	if one.Pod != nil || got["allowed"] == false {
		return got
	}
	set, err := s.write(s.t.Context(), one)
	if err != nil {
		return answer{"allowed": false, "message": err.Error()}
	}
	return s.admitted(set)
}

type writeOption interface {
	client.CreateOption
	client.PatchOption
}

func (s *served) write(ctx context.Context, one step, options ...writeOption) (*unstructured.Unstructured, error) {
	set := &unstructured.Unstructured{}
	if one.Patch == nil {
		require.NoError(s.t, json.Unmarshal(one.SidecarSet, &set.Object))
	}
	set.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SidecarSet"))
	if one.Patch != nil {
		set.SetName(one.Patch.Name)
		body := bytes.ReplaceAll(one.Patch.Body, []byte("$REV1"), []byte(s.firstRevision()))
		var patchOptions []client.PatchOption
		for _, option := range options {
			patchOptions = append(patchOptions, option)
		}
		return set, s.client.Patch(ctx, set, client.RawPatch(types.MergePatchType, body), patchOptions...)
	}
	var createOptions []client.CreateOption
	for _, option := range options {
		createOptions = append(createOptions, option)
	}
	return set, s.client.Create(ctx, set, createOptions...)
}

func (s *served) firstRevision() string {
	for _, one := range s.answers {
		if name, ok := one["revision"].(string); ok {
			return name
		}
	}
	return ""
}

// admitted returns the result of a stored SidecarSet, with the revision that the operator has registered.
func (s *served) admitted(set *unstructured.Unstructured) answer {
	if !slices.Contains(s.sets, set.GetName()) {
		s.sets = append(s.sets, set.GetName())
	}
	seen := &v1alpha1.SidecarSet{}
	err := wait.PollUntilContextTimeout(s.t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := s.client.Get(ctx, client.ObjectKeyFromObject(set), seen)
		return seen.Status.ObservedGeneration >= set.GetGeneration() && seen.Status.LatestRevision != "", err
	})
	require.NoError(s.t, err, "wait for the revision of %s", set.GetName())
	annotations := set.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	got := answer{"allowed": true, "revision": seen.Status.LatestRevision, "sidecarSet": map[string]any{
		"annotations": plain(s.t, annotations), "labels": labelsOf(s.t, set.GetLabels()), "spec": plain(s.t, set.Object["spec"]),
	}}
	s.answers = append(s.answers, got)
	return s.renamed(got)
}

// pod creates a pod in a dry run, because no kubelet runs pods in this cluster.
func (s *served) pod(ctx context.Context, raw []byte) answer {
	pod := &corev1.Pod{}
	require.NoError(s.t, json.Unmarshal(raw, pod))
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.AutomountServiceAccountToken = new(false)
	if err := s.client.Create(ctx, pod, client.DryRunAll); err != nil {
		return answer{"allowed": false, "message": err.Error()}
	}
	return s.renamed(answer{"allowed": true, "pod": (&cluster{t: s.t}).stripped(pod)})
}

// renamed replaces the names of revisions in got by R1, R2, and so on, numbered by their first use in s.answers.
func (s *served) renamed(got answer) answer {
	c := &cluster{t: s.t}
	for _, one := range s.answers {
		name := one["revision"].(string)
		if !slices.ContainsFunc(c.revisions, func(r appsv1.ControllerRevision) bool { return r.Name == name }) {
			c.revisions = append(c.revisions, appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	return c.renamed([]answer{got})[0]
}

func (s *served) apply(object client.Object) {
	err := s.client.Create(s.t.Context(), object)
	if apierrors.IsAlreadyExists(err) {
		object.SetResourceVersion("")
		err = s.client.Update(s.t.Context(), object)
	}
	require.NoError(s.t, err)
}

// clean deletes the SidecarSets, the revisions and the whitelist, so that the next case starts without these
// objects.
func (s *served) clean() {
	ctx := context.WithoutCancel(s.t.Context())
	for _, name := range s.sets {
		set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(s.t, client.IgnoreNotFound(s.client.Delete(ctx, set)))
		require.NoError(s.t, s.client.DeleteAllOf(ctx, &appsv1.ControllerRevision{}, client.InNamespace(devcluster.SystemNamespace),
			client.MatchingLabels{v1alpha1.SidecarSetNameLabel: name}))
	}
	whitelist := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: devcluster.SystemNamespace, Name: v1alpha1.ConfigurationName}}
	require.NoError(s.t, client.IgnoreNotFound(s.client.Delete(ctx, whitelist)))
}
