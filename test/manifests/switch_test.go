package manifests

import (
	"bytes"
	"cmp"
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/api/v1beta1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/internal/conversion"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/crd"
)

// installer is the field manager that applies the definitions of Outrigger and of other installations.
const installer = "installer"

// switching is a cluster with the CustomResourceDefinition of another installation. The conversion webhook of
// the other installation does not run.
type switching struct {
	t       *testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	client  client.Client
}

func newSwitching(t *testing.T) *switching {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir(), Nodes: 1, WithoutTemporal: true, Manifests: []string{"../../config/rbac"}})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	config, err := c.RESTConfig()
	require.NoError(t, err)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	require.NoError(t, admissionregistrationv1.AddToScheme(scheme))
	direct, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return &switching{t: t, ctx: ctx, cluster: c, client: direct}
}

func (s *switching) kubectl(stdin []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(s.ctx, "../../bin/kubectl", append([]string{"--kubeconfig=" + s.cluster.Kubeconfig}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *switching) await(what string, done func() error) {
	s.t.Helper()
	var cause error
	err := wait.PollUntilContextCancel(s.ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		cause = done()
		return cause == nil, nil
	})
	require.NoError(s.t, err, "wait for %s: %v", what, cause)
}

// ours returns the CustomResourceDefinition of Outrigger from a kustomize directory.
func (s *switching) ours(folder string) *apiextensionsv1.CustomResourceDefinition {
	s.t.Helper()
	out, err := s.kubectl(nil, "kustomize", folder)
	require.NoError(s.t, err, out)
	for document := range strings.SplitSeq(out, "\n---\n") {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(s.t, yaml.Unmarshal([]byte(document), definition))
		if definition.Name == crd.Name {
			return definition
		}
	}
	require.Fail(s.t, "no definition", folder)
	return nil
}

// theirs returns the CustomResourceDefinition of another installation. The API server stores SidecarSets in
// the version storage. Each version lacks the field that only the other version has.
func (s *switching) theirs(storage string) *apiextensionsv1.CustomResourceDefinition {
	s.t.Helper()
	definition := s.ours("../../config/crd")
	for i := range definition.Spec.Versions {
		version := &definition.Spec.Versions[i]
		version.Storage = version.Name == storage
		foreign := map[string]string{"v1alpha1": "customVersion", "v1beta1": "namespace"}[version.Name]
		delete(version.Schema.OpenAPIV3Schema.Properties["spec"].Properties, foreign)
	}
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "kruise-system", Name: "gone", Path: new("/convert"), Port: new(int32(443))}},
			ConversionReviewVersions: []string{"v1", "v1beta1"},
		},
	}
	return definition
}

// apply applies a definition with kubectl, and returns the output.
func (s *switching) apply(definition *apiextensionsv1.CustomResourceDefinition, how ...string) (string, error) {
	s.t.Helper()
	manifest, err := yaml.Marshal(definition)
	require.NoError(s.t, err)
	out, err := s.kubectl(manifest, append(how, "-f", "-")...)
	if err == nil {
		require.NoError(s.t, s.cluster.AwaitEstablished(s.ctx, crd.Name))
	}
	return out, err
}

// certify simulates the certificate rotation of the manager of the other installation, with the field owner
// of this manager.
func (s *switching) certify() {
	s.t.Helper()
	config, err := s.cluster.RESTConfig()
	require.NoError(s.t, err)
	definition, err := crd.Get(s.ctx, s.client)
	require.NoError(s.t, err)
	definition.Spec.Conversion.Webhook.ClientConfig.CABundle = config.CAData
	require.NoError(s.t, s.client.Update(s.ctx, definition, client.FieldOwner("their-manager")))
}

// reset removes the objects that the previous round has created.
func (s *switching) reset() {
	s.t.Helper()
	for _, name := range []string{cluster.Operator, cluster.Worker, cluster.Webhook} {
		if _, err := s.cluster.Process(name); err == nil {
			require.NoError(s.t, s.cluster.Stop(name))
		}
	}
	configurations := []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}}
	for _, object := range configurations {
		object.SetName("outrigger")
		require.NoError(s.t, client.IgnoreNotFound(s.client.Delete(s.ctx, object)))
	}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}}
	require.NoError(s.t, client.IgnoreNotFound(s.client.Delete(s.ctx, definition)))
	s.await("the definition to go", func() error {
		if err := s.client.Get(s.ctx, client.ObjectKeyFromObject(definition), definition); !apierrors.IsNotFound(err) {
			return context.DeadlineExceeded
		}
		return nil
	})
}

// store creates a SidecarSet in the API version version. The SidecarSet has the defaults and hashes that the
// webhook of the other installation writes.
func (s *switching) store(name, version string) {
	s.t.Helper()
	set := fixture.SidecarSet(name, fixture.Sidecar("side"))
	set.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SidecarSet"}
	set.Labels = map[string]string{v1alpha1.CustomVersionLabel: "one"}
	set.Spec.Namespace = "kube-public"
	defaults.Write(set)
	require.NoError(s.t, revision.WriteHashes(set))
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	require.NoError(s.t, err)
	require.NoError(s.t, conversion.Convert(object, v1alpha1.GroupVersion.Group+"/"+version))
	// Until the API server uses the new definition, the API server calls the conversion webhook, and the
	// creation fails.
	s.await("the set to be stored", func() error {
		return s.client.Create(s.ctx, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)})
	})
}

// storeBoth stores a SidecarSet in each API version. Neither SidecarSet can be read in the other API version.
func (s *switching) storeBoth() {
	s.t.Helper()
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		out, err := s.apply(s.theirs(version), "apply", "--server-side", "--field-manager="+installer)
		require.NoError(s.t, err, out)
		s.store("stored-as-"+version, version)
	}
	require.NoError(s.t, stored(s.definition(), "v1alpha1", "v1beta1"))
	s.certify()
	require.ErrorContains(s.t, s.client.List(s.ctx, list("v1alpha1")), "conversion webhook for apps.kruise.io/v1beta1")
}

func list(version string) *unstructured.UnstructuredList {
	sets := &unstructured.UnstructuredList{}
	sets.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SidecarSetList"))
	sets.SetAPIVersion(v1alpha1.GroupVersion.Group + "/" + version)
	return sets
}

func (s *switching) definition() *apiextensionsv1.CustomResourceDefinition {
	s.t.Helper()
	definition, err := crd.Get(s.ctx, s.client)
	require.NoError(s.t, err)
	return definition
}

func stored(definition *apiextensionsv1.CustomResourceDefinition, versions ...string) error {
	if slices.Equal(definition.Status.StoredVersions, versions) {
		return nil
	}
	return &unexpected{definition.Status.StoredVersions}
}

type unexpected struct{ got any }

func (u *unexpected) Error() string { return "got " + strings.Join(u.got.([]string), ", ") }

// start starts the roles in order, and returns when all roles are ready. A role starts when the previous role
// runs. Only the webhook role may patch the definition, so the other roles become ready after the webhook
// role.
func (s *switching) start(order []string) {
	s.t.Helper()
	var ready errgroup.Group
	for _, role := range order {
		ready.Go(func() error { return s.startRole(role) })
		s.await(role+" to run", func() error {
			process, err := s.cluster.Process(role)
			if err == nil && !process.Running {
				err = &unexpected{[]string{"a stopped " + role}}
			}
			return err
		})
	}
	require.NoError(s.t, ready.Wait())
}

func (s *switching) startRole(role string) error {
	for _, started := range s.cluster.Roles() {
		if started.Name != role {
			continue
		}
		if started.WebhookURL != "" {
			if err := s.cluster.InstallWebhooks(s.ctx, started.WebhookURL); err != nil {
				return err
			}
		}
		return s.cluster.StartAgain(s.ctx, role)
	}
	_, err := s.cluster.StartRole(s.ctx, role)
	return err
}

// intact returns an error if a SidecarSet, its status or its revision has changed in one of the two API
// versions.
func (s *switching) intact(name string) error {
	set := &v1alpha1.SidecarSet{}
	if err := s.client.Get(s.ctx, client.ObjectKey{Name: name}, set); err != nil {
		return err
	}
	beta := &unstructured.Unstructured{}
	beta.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("SidecarSet"))
	if err := s.client.Get(s.ctx, client.ObjectKey{Name: name}, beta); err != nil {
		return err
	}
	spec := beta.Object["spec"].(map[string]any)
	revision := &appsv1.ControllerRevision{}
	key := client.ObjectKey{Namespace: cluster.SystemNamespace, Name: set.Status.LatestRevision}
	if err := s.client.Get(s.ctx, key, revision); err != nil {
		return err
	}
	selector, _ := spec["namespaceSelector"].(map[string]any)
	named, _ := selector["matchLabels"].(map[string]any)
	got := []string{
		cmp.Or(set.Labels[v1alpha1.CustomVersionLabel], set.Spec.CustomVersion),
		cmp.Or(set.Spec.Namespace, namedNamespace(set.Spec.NamespaceSelector)),
		text(spec["customVersion"]), text(named["kubernetes.io/metadata.name"]),
		revision.Labels[v1alpha1.CustomVersionLabel], set.Annotations[v1alpha1.HashAnnotation],
	}
	want := []string{"one", "kube-public", "one", "kube-public", "one", revision.Annotations[v1alpha1.HashAnnotation]}
	if set.Status.ObservedGeneration != set.Generation || !slices.Equal(got, want) {
		return &unexpected{got}
	}
	return nil
}

func text(value any) string {
	is, _ := value.(string)
	return is
}

func namedNamespace(selector *metav1.LabelSelector) string {
	if selector == nil {
		return ""
	}
	return selector.MatchLabels["kubernetes.io/metadata.name"]
}

// SidecarSets are unreadable until the webhook role starts. For each pair of roles, the test covers both orders.
// The second order uses the definition of Outrigger, and the other orders use the definition of OpenKruise.
func TestRolesStartInEveryOrderOverADeadConversion(t *testing.T) {
	t.Parallel()
	s := newSwitching(t)
	for i, order := range [][]string{
		{cluster.Operator, cluster.Worker, cluster.Webhook},
		{cluster.Worker, cluster.Webhook, cluster.Operator},
		{cluster.Webhook, cluster.Operator, cluster.Worker},
	} {
		t.Run(strings.Join(order, ","), func(t *testing.T) {
			s := &switching{t: t, ctx: s.ctx, cluster: s.cluster, client: s.client}
			s.reset()
			s.storeBoth()
			if ours := i%2 == 1; ours {
				out, err := s.apply(s.ours("../../config/default"), "apply", "--server-side", "--force-conflicts", "--field-manager="+installer)
				require.NoError(t, err, out)
			}
			s.start(order)
			for _, name := range []string{"stored-as-v1alpha1", "stored-as-v1beta1"} {
				s.await(name+" to be intact", func() error { return s.intact(name) })
			}
			if i > 1 {
				return // Each definition has been migrated once.
			}
			storage := []string{"v1beta1", "v1alpha1"}[i]
			s.await("all sets to be stored as one version", func() error { return stored(s.definition(), storage) })
			for _, name := range []string{"stored-as-v1alpha1", "stored-as-v1beta1"} {
				require.NoError(t, s.intact(name))
			}
		})
	}
}

// The certificate in the definition always belongs to another installation.
func TestTheDefinitionCanBeAppliedOverTheirs(t *testing.T) {
	t.Parallel()
	s := newSwitching(t)
	for _, before := range []string{"create", "apply", "apply --server-side --field-manager=" + installer} {
		for _, how := range []string{
			"apply",
			"apply --server-side --force-conflicts --field-manager=" + installer,
			"apply --server-side --force-conflicts --field-manager=other",
		} {
			s.reset()
			out, err := s.apply(s.theirs("v1beta1"), strings.Fields(before)...)
			require.NoError(t, err, out)
			s.certify()
			out, err = s.apply(s.ours("../../config/default"), strings.Fields(how)...)
			require.NoError(t, err, "%s over %s: %s", how, before, out)
			assert.Equal(t, "outrigger-webhook", s.definition().Spec.Conversion.Webhook.ClientConfig.Service.Name)
		}
	}
}

// The roles run outside the cluster, so the applied definition contains no Service.
func TestAnInstallerLeavesSetsThatCanBeRead(t *testing.T) {
	t.Parallel()
	s := newSwitching(t)
	s.storeBoth()
	require.NoError(t, s.cluster.Apply(s.ctx, "../../config/crd"))
	sets := &v1alpha1.SidecarSetList{}
	require.NoError(t, s.client.List(s.ctx, sets))
	require.Len(t, sets.Items, 2)
	assert.Equal(t, "one", sets.Items[0].Labels[v1alpha1.CustomVersionLabel])
	assert.Equal(t, "one", sets.Items[1].Spec.CustomVersion)
	require.NoError(t, stored(s.definition(), "v1alpha1", "v1beta1"))
}
