package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube"
)

const (
	// pageSize is the page size of lists, as in kubectl.
	pageSize = 500
	// dialTimeout limits the wait for an API server that does not respond.
	dialTimeout = 4 * time.Second
)

// cluster contains the clients and the settings with which commands access the cluster.
type cluster struct {
	client.Reader
	// live is the client for writes, and for reads that must not use the cache of a watch.
	live            client.Client
	config          *rest.Config
	systemNamespace string
	// page is the page size of lists. page is 0 for a cache, because a cache has no pages.
	page int64
}

// connectCluster returns the cluster of the kubeconfig. connectCluster does not wait for the API server.
func (s *shared) connectCluster() (*cluster, error) {
	if *s.config.KubeConfig == "" && *s.config.APIServer == "" {
		if err := errors.Join(kube.CheckKubeconfig(), noKubeconfig(clientcmd.RecommendedHomeFile)); err != nil {
			return nil, err
		}
	}
	if _, err := clientcmd.ParseTimeout(*s.config.Timeout); err != nil {
		return nil, fmt.Errorf("--request-timeout %q: use a duration such as 5s or 2m", *s.config.Timeout)
	}
	config, err := s.config.ToRESTConfig()
	if file, cause, bad := strings.Cut(fmt.Sprint(err), "\": "); bad && strings.HasPrefix(file, unreadableConfig) {
		return nil, badKubeconfig(strings.TrimPrefix(file, unreadableConfig), cause)
	}
	if err != nil {
		return nil, fmt.Errorf("find a cluster: %w (name one with --context or --kubeconfig; kubectl config get-contexts lists the contexts)", err)
	}
	config.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	// These rate limits are the same as in kubectl, because a user waits for the answers.
	config.QPS, config.Burst = 50, 300
	config.UserAgent = name
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	live, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("set up a client: %w", err)
	}
	return &cluster{Reader: live, live: live, config: config, systemNamespace: s.systemNamespace, page: pageSize}, nil
}

// noKubeconfig returns an error if there is no kubeconfig: KUBECONFIG is not set, file does not exist, and
// the command does not run in a pod. Without this error, client-go would connect to 127.0.0.1:8080.
func noKubeconfig(file string) error {
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return nil
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("find a cluster: %s is not set, and %s does not exist (set the variable, or use --kubeconfig)", clientcmd.RecommendedConfigPathEnvVar, file)
}

// unreadableConfig is the beginning of the errors of client-go about a kubeconfig that cannot be read.
const unreadableConfig = `error loading config file "`

// badKubeconfig returns the error about a kubeconfig that cannot be read. If the file is not a kubeconfig,
// badKubeconfig replaces cause, which would name Go types.
func badKubeconfig(file, cause string) error {
	if strings.Contains(cause, "unmarshal") || strings.Contains(cause, "yaml: ") {
		cause = "it is not a kubeconfig"
	}
	return fmt.Errorf("read kubeconfig %s: %s (name another one with --kubeconfig or KUBECONFIG)", file, cause)
}

// sets returns all SidecarSets, sorted by name, with the same defaults as in the operator and the workers.
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

func setNames(sets []v1alpha1.SidecarSet) []string {
	names := make([]string, len(sets))
	for i := range sets {
		names[i] = sets[i].Name
	}
	return names
}

// setKinds returns the resource names by which kubectl accepts SidecarSets.
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
	if strings.Contains(name, "/") {
		return nil, fmt.Errorf("%q is not a SidecarSet: use NAME or sidecarset/NAME", given)
	}
	var set v1alpha1.SidecarSet
	err := c.Get(ctx, client.ObjectKey{Name: name}, &set)
	if apierrors.IsNotFound(err) && !kube.MissingKind(err) {
		return nil, c.noSuchSet(ctx, name)
	}
	if err != nil {
		return nil, explain(err, "get SidecarSet "+name)
	}
	return revision.Completed(&set)
}

var errNoSuchSet = errors.New("there is no SidecarSet")

// noSuchSet returns the error about a SidecarSet that does not exist. The error names existing SidecarSets.
func (c *cluster) noSuchSet(ctx context.Context, name string) error {
	sets, err := c.sets(ctx)
	if err != nil {
		return fmt.Errorf("%w %q", errNoSuchSet, name)
	}
	return fmt.Errorf("%w %q; %s", errNoSuchSet, name, others(sets))
}

// others returns a text with the names of the first SidecarSets.
func others(sets []v1alpha1.SidecarSet) string {
	const enough = 10
	names := setNames(sets)
	switch {
	case len(names) == 0:
		return "there are no SidecarSets"
	case len(names) > enough:
		names = append(names[:enough], "…")
	}
	return "SidecarSets: " + strings.Join(names, ", ")
}

// input reads the pods that the selector of a SidecarSet selects in namespace, or in all namespaces if
// namespace is empty. The namespaceSelector of the SidecarSet may exclude some of these pods.
func (c *cluster) input(ctx context.Context, set *v1alpha1.SidecarSet, namespace string) (*view.Input, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	in := &view.Input{Set: set, NamespaceLabels: c.namespaceLabels(ctx), SystemNamespace: c.systemNamespace}
	one := scope.OneNamespace()
	if match.MatchesNothing(set.Spec.Selector) || one != "" && namespace != "" && one != namespace {
		return in, nil
	}
	if in.Pods, err = listPods(ctx, c, c.page, client.MatchingLabelsSelector{Selector: scope.PodSelector()}, client.InNamespace(cmp.Or(one, namespace))); err != nil {
		return nil, explain(err, "list the pods of SidecarSet "+set.Name)
	}
	return in, nil
}

// listPods lists pods in pages. If page is 0, listPods lists all pods at once, because a cache does not accept
// continue tokens.
func listPods(ctx context.Context, reader client.Reader, page int64, options ...client.ListOption) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for next := ""; ; {
		var list corev1.PodList
		if err := reader.List(ctx, &list, append(options, client.Limit(page), client.Continue(next))...); err != nil {
			return nil, err
		}
		for i := range list.Items {
			pods = append(pods, &list.Items[i])
		}
		if next = list.Continue; next == "" || page == 0 {
			return pods, nil
		}
	}
}

// revisions returns the revisions of a SidecarSet, the oldest first.
func (c *cluster) revisions(ctx context.Context, set *v1alpha1.SidecarSet) ([]*appsv1.ControllerRevision, error) {
	listed, err := c.listRevisions(ctx, set.Name)
	return revision.Of(set, listed), err
}

// listRevisions returns the revisions with the label of a SidecarSet.
func (c *cluster) listRevisions(ctx context.Context, set string) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := c.List(ctx, &list, client.InNamespace(c.systemNamespace), client.MatchingLabels{v1alpha1.SidecarSetNameLabel: set})
	if err != nil {
		return nil, explain(err, "list the revisions of SidecarSet "+set+" in namespace "+c.systemNamespace)
	}
	return list.Items, nil
}

// policy returns the RolloutPolicy of a rollout, or nil if the rollout has no policy. policy also returns nil
// if the RolloutPolicy cannot be read, because the status of the SidecarSet also shows the current step.
func (c *cluster) policy(ctx context.Context, set *v1alpha1.SidecarSet) *outriggerv1.RolloutPolicy {
	policy := &outriggerv1.RolloutPolicy{}
	if set.Status.Rollout == nil || set.Status.Rollout.Policy == "" || c.Get(ctx, client.ObjectKey{Name: set.Status.Rollout.Policy}, policy) != nil {
		return nil
	}
	return policy
}

// policies lists the RolloutPolicies. Without the CustomResourceDefinition of RolloutPolicies, the list is
// empty.
func (c *cluster) policies(ctx context.Context) ([]outriggerv1.RolloutPolicy, error) {
	var list outriggerv1.RolloutPolicyList
	if err := c.List(ctx, &list); err != nil && !kube.MissingKind(err) {
		return nil, explain(err, "list RolloutPolicies")
	}
	return list.Items, nil
}

// lacksNamespace reports whether a namespace does not exist. If the namespace cannot be read, lacksNamespace
// returns false.
func (c *cluster) lacksNamespace(ctx context.Context, name string) bool {
	return apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))
}

// noNamespace returns the error about a namespace that does not exist.
func noNamespace(name string) error {
	return fmt.Errorf("namespace %s does not exist: name another one with -n (kubectl get namespaces)", name)
}

// singleNamespaces is the number of namespaces that a command reads one at a time. For more namespaces, the command
// lists all namespaces.
const singleNamespaces = 20

// namespaceLabels returns a function that returns the labels of a namespace. The function reads each
// namespace once.
func (c *cluster) namespaceLabels(ctx context.Context) func(string) (map[string]string, error) {
	read, known, listed := kube.NamespaceLabels(ctx, c), map[string]map[string]string{}, false
	return func(namespace string) (map[string]string, error) {
		if labels, ok := known[namespace]; ok {
			return labels, nil
		}
		if !listed && len(known) >= singleNamespaces {
			listed = true
			var all corev1.NamespaceList
			// A user without the permission to list namespaces may have the permission to read a namespace.
			if c.List(ctx, &all) == nil {
				for i := range all.Items {
					known[all.Items[i].Name] = all.Items[i].Labels
				}
			}
			if labels, ok := known[namespace]; ok {
				return labels, nil
			}
		}
		labels, err := read(namespace)
		if err != nil {
			return nil, explain(err, "get namespace "+namespace)
		}
		known[namespace] = labels
		return labels, nil
	}
}

// user returns the name with which the API server authenticates the user. If the API server does not return
// the name, user returns the name of the user of this machine.
func (c *cluster) user(ctx context.Context) string {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.live.Create(ctx, review); err != nil || review.Status.UserInfo.Username == "" {
		return os.Getenv("USER")
	}
	return review.Status.UserInfo.Username
}

// explain adds the failed action and, if a remedy is known, the remedy to err.
func explain(err error, action string) error {
	switch {
	case kube.MissingKind(err):
		return fmt.Errorf("%s: this cluster does not know SidecarSets (CRD sidecarsets.apps.kruise.io): check that --context selects the right cluster, and that Outrigger is installed in this cluster", action)
	case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), " cannot "):
		// Admission also denies requests with status 403, and no role permits these requests.
		return fmt.Errorf("%s: not allowed: %w", action, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: not allowed: %w; ask for a role that grants that verb on that resource", action, err)
	case strings.Contains(err.Error(), "failed calling webhook"), strings.Contains(err.Error(), "conversion webhook"):
		return fmt.Errorf("%s: %w; check the webhook: kubectl sidecarset check", action, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: the API server does not accept these credentials: %w; renew the credentials, or select other credentials (--user, --context, --kubeconfig, KUBECONFIG)", action, err)
	case answered(err):
		return fmt.Errorf("%s: %w", action, err)
	case strings.Contains(err.Error(), "has expired or is not yet valid"):
		return fmt.Errorf("%s: the certificate of the API server is not valid at this time: %w (renew it, or correct the clock)", action, err)
	case strings.Contains(err.Error(), "tls: failed to verify certificate"):
		return fmt.Errorf("%s: this kubeconfig does not trust the certificate of the API server: correct its certificate-authority or --certificate-authority, take a new kubeconfig of the cluster, or select another cluster with --context, --kubeconfig or KUBECONFIG: %w", action, err)
	case isOtherServer(err):
		return fmt.Errorf("%s: the server is not a Kubernetes API server: %w (correct --server, --context, --kubeconfig or KUBECONFIG)", action, err)
	}
	failed, ok := errors.AsType[*url.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", action, err)
	}
	if isUnreachable(failed) {
		return fmt.Errorf("%s: the API server cannot be reached: %w (check that the API server runs, and that --context, --kubeconfig or KUBECONFIG selects the right cluster)", action, failed.Err)
	}
	return fmt.Errorf("%s: %w", action, failed.Err)
}

// answered reports whether an API server returned the error. The error of an API server may quote a connection
// error between the API server and a webhook.
func answered(err error) bool {
	_, ok := errors.AsType[*apierrors.StatusError](err)
	return ok
}

// isOtherServer reports whether a server does not speak the protocol of an API server, or answers with a web
// page. The Go libraries have no types for these errors, so isOtherServer compares their texts. The last text
// means that the server sent data before the request.
func isOtherServer(err error) bool {
	return slices.ContainsFunc([]string{"malformed HTTP", "server gave HTTP response to HTTPS client", "invalid character '<'", "readLoopPeekFailLocked: %!w(<nil>)"},
		func(sign string) bool { return strings.Contains(err.Error(), sign) })
}

// isUnreachable reports whether a server does not respond. If the context of the command has ended,
// isUnreachable returns false. The deadline is not compared with errors.Is, because errors.Is also returns
// true for a network timeout.
func isUnreachable(failed *url.Error) bool {
	if errors.Is(failed, context.Canceled) || failed.Err == context.DeadlineExceeded { //nolint:errorlint // see above
		return false
	}
	call, ok := errors.AsType[*net.OpError](failed)
	return ok && call.Op == "dial" || failed.Timeout()
}
