package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube"
)

// pageSize is how many objects kubectl asks for at once.
const pageSize = 500

// cluster reads what the commands need.
type cluster struct {
	client.Reader
	// live writes, too.
	live            client.Client
	config          *rest.Config
	scheme          *runtime.Scheme
	systemNamespace string
	// page is 0 for a cache, which gives everything at once.
	page int64
}

// reach finds the cluster that the flags name. It does not talk to it yet.
func (s *shared) reach() (*cluster, error) {
	config, err := s.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find a cluster: %w (name one with --context or --kubeconfig)", err)
	}
	// As kubectl: whoever waits here is one person.
	config.QPS, config.Burst = 50, 300
	config.UserAgent = name
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	live, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("set up a client: %w", err)
	}
	return &cluster{Reader: live, live: live, config: config, scheme: scheme, systemNamespace: s.systemNamespace, page: pageSize}, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	for _, add := range []func(*runtime.Scheme) error{authenticationv1.AddToScheme, admissionv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	return scheme, nil
}

// sets are completed: what is shown is what the operator and the workers go by.
func (c *cluster) sets(ctx context.Context) ([]v1alpha1.SidecarSet, error) {
	var list v1alpha1.SidecarSetList
	if err := c.List(ctx, &list); err != nil {
		return nil, explain(err, "list SidecarSets")
	}
	for i := range list.Items {
		completed, err := revision.Completed(&list.Items[i])
		if err != nil {
			return nil, err
		}
		list.Items[i] = *completed
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.SidecarSet) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// setKinds are what kubectl calls SidecarSets.
func setKinds() []string {
	return []string{"sidecarset", "sidecarsets", "scs", "sidecarset.apps.kruise.io", "sidecarsets.apps.kruise.io"}
}

func (c *cluster) set(ctx context.Context, name string) (*v1alpha1.SidecarSet, error) {
	given := name
	if kind, rest, ok := strings.Cut(name, "/"); ok && slices.Contains(setKinds(), kind) {
		name = rest
	}
	if name == "" {
		return nil, fmt.Errorf("name a SidecarSet: %q has none", given)
	}
	var set v1alpha1.SidecarSet
	err := c.Get(ctx, client.ObjectKey{Name: name}, &set)
	if apierrors.IsNotFound(err) && !missingKind(err) {
		return nil, c.noSuchSet(ctx, name)
	}
	if err != nil {
		return nil, explain(err, "get SidecarSet "+name)
	}
	return revision.Completed(&set)
}

var errNoSuchSet = errors.New("there is no SidecarSet")

// noSuchSet names those that there are.
func (c *cluster) noSuchSet(ctx context.Context, name string) error {
	const enough = 10
	sets, err := c.sets(ctx)
	if err != nil {
		return fmt.Errorf("%w %q", errNoSuchSet, name)
	}
	var names []string
	for i := range sets[:min(enough, len(sets))] {
		names = append(names, sets[i].Name)
	}
	switch {
	case len(names) == 0:
		return fmt.Errorf("%w %q, nor any other", errNoSuchSet, name)
	case len(sets) > enough:
		names = append(names, "…")
	}
	return fmt.Errorf("%w %q; there are %s", errNoSuchSet, name, strings.Join(names, ", "))
}

// pods that a set selects, or a few more, in a namespace; an empty one is all.
func (c *cluster) pods(ctx context.Context, set *v1alpha1.SidecarSet, namespace string) ([]*corev1.Pod, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	one := scope.OneNamespace()
	if match.MatchesNothing(set.Spec.Selector) || one != "" && namespace != "" && one != namespace {
		return nil, nil
	}
	options := []client.ListOption{client.MatchingLabelsSelector{Selector: scope.PodSelector()}, client.InNamespace(cmp.Or(one, namespace))}
	var pods []*corev1.Pod
	next := ""
	for {
		var list corev1.PodList
		page := options
		if c.page > 0 {
			page = append(slices.Clone(options), client.Limit(c.page), client.Continue(next))
		}
		if err := c.List(ctx, &list, page...); err != nil {
			return nil, explain(err, "list the pods of SidecarSet "+set.Name)
		}
		for i := range list.Items {
			pods = append(pods, &list.Items[i])
		}
		// A cache gives everything at once, and a token that it does not take.
		if next = list.Continue; next == "" || c.page == 0 {
			return pods, nil
		}
	}
}

// revisions of a set, the oldest first.
func (c *cluster) revisions(ctx context.Context, set *v1alpha1.SidecarSet) ([]*appsv1.ControllerRevision, error) {
	listed, err := c.listRevisions(ctx, set.Name)
	return revision.Of(set, listed), err
}

// listRevisions returns those that bear the name of a set.
func (c *cluster) listRevisions(ctx context.Context, set string) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := c.List(ctx, &list, client.InNamespace(c.systemNamespace), client.MatchingLabels{v1alpha1.SidecarSetNameLabel: set})
	if err != nil {
		return nil, explain(err, "list the revisions of SidecarSet "+set+" in namespace "+c.systemNamespace)
	}
	return list.Items, nil
}

// namespaceLabels keeps what it has read.
func (c *cluster) namespaceLabels(ctx context.Context) func(string) (map[string]string, error) {
	read, known := kube.NamespaceLabels(ctx, c), map[string]map[string]string{}
	return func(namespace string) (map[string]string, error) {
		if labels, ok := known[namespace]; ok {
			return labels, nil
		}
		labels, err := read(namespace)
		if err != nil {
			return nil, explain(err, "get namespace "+namespace)
		}
		known[namespace] = labels
		return labels, nil
	}
}

// user is who the API server says that this is; empty if it does not.
func (c *cluster) user(ctx context.Context) string {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.live.Create(ctx, review); err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

// missingKind reports whether the cluster does not know SidecarSets.
func missingKind(err error) bool {
	var status apierrors.APIStatus
	if meta.IsNoMatchError(err) {
		return true
	}
	// Discovery was cached, or is not allowed: the path itself is unknown.
	return apierrors.IsNotFound(err) && errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

// explain says what was tried and, where it is known, what helps.
func explain(err error, what string) error {
	switch {
	case missingKind(err):
		return fmt.Errorf("%s: this cluster does not know SidecarSets (CRD sidecarsets.apps.kruise.io): is it the right one (--context), and is Outrigger installed in it?", what)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: not allowed: %w; ask for a role that grants that verb on that resource", what, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: the API server does not accept these credentials: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
