package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/output"
)

func newWhy(s *shared) *cobra.Command {
	return s.prints(&cobra.Command{
		Use:   "why (POD | NAMESPACE/POD | SET | pod/NAME | sidecarset/NAME)",
		Short: "Explain the injection and upgrade of a pod, or a rollout without progress",
		Example: `  kubectl sidecarset why web-7d4b9c6f5b-x2x9p        # a pod of the present namespace
  kubectl sidecarset why shop/web-7d4b9c6f5b-x2x9p   # a pod of namespace shop
  kubectl sidecarset why sidecarset/logs             # a rollout without progress`,
		Args: takes(1, "a pod or a SidecarSet"), ValidArgsFunction: s.completeSets,
	}, &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		return s.why(ctx, c, args[0])
	}, output.JSON, output.YAML)
}

func (s *shared) why(ctx context.Context, c *cluster, about string) (model, error) {
	namespace, _, err := s.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the namespace: %w", err)
	}
	kind, name, ok := strings.Cut(about, "/")
	if ok && (kind == "" || strings.Trim(name, "/") == "") {
		name = ""
	}
	if !ok && about != "" {
		if kind, err = c.kindOf(ctx, namespace, about); err != nil {
			return nil, err
		}
		name = about
	}
	switch {
	case name == "":
		return nil, fmt.Errorf("name a pod or a SidecarSet: %q has none", about)
	case slices.Contains([]string{"pod", "pods", "po"}, kind):
		m, err := s.whyPod(ctx, c, client.ObjectKey{Namespace: namespace, Name: name})
		if apierrors.IsNotFound(err) {
			return nil, c.noPod(ctx, namespace, name)
		}
		return m, err
	case slices.Contains(setKinds(), kind):
		return s.whySet(ctx, c, name)
	}
	return s.whyPodOf(ctx, c, kind, name)
}

// whyPodOf explains a pod that the user names as NAMESPACE/POD, the form in which other commands print pods.
func (s *shared) whyPodOf(ctx context.Context, c *cluster, namespace, name string) (model, error) {
	m, err := s.whyPod(ctx, c, client.ObjectKey{Namespace: namespace, Name: name})
	if !apierrors.IsNotFound(err) || kube.MissingKind(err) {
		return m, err
	}
	lacks := c.lacksNamespace(ctx, namespace)
	switch {
	case lacks && slices.Contains(workloadKinds(), namespace):
		return nil, fmt.Errorf("%s/%s is neither a pod nor a SidecarSet: use pod/NAME, NAMESPACE/POD or sidecarset/NAME (kubectl get pods)", namespace, name)
	case lacks:
		return nil, fmt.Errorf("there is no pod %s: namespace %s does not exist: use pod/NAME, NAMESPACE/POD or sidecarset/NAME (kubectl get namespaces)", name, namespace)
	}
	return nil, fmt.Errorf("there is no pod %s in namespace %s: use pod/NAME, NAMESPACE/POD or sidecarset/NAME", name, namespace)
}

// workloadKinds returns kinds that a user may type instead of pod.
func workloadKinds() []string {
	return []string{"deployment", "deployments", "deploy", "statefulset", "statefulsets", "sts", "daemonset", "daemonsets", "ds", "replicaset", "replicasets", "rs",
		"job", "jobs", "cronjob", "cronjobs", "cj", "node", "nodes"}
}

// noPod returns the error about a pod that does not exist in a namespace.
func (c *cluster) noPod(ctx context.Context, namespace, name string) error {
	if c.lacksNamespace(ctx, namespace) {
		return fmt.Errorf("there is no pod %s: %w", name, noNamespace(namespace))
	}
	return fmt.Errorf("there is no pod %s in namespace %s: use -n or NAMESPACE/POD", name, namespace)
}

// kindOf returns the kind of the object name, which is a SidecarSet or a pod.
func (c *cluster) kindOf(ctx context.Context, namespace, name string) (string, error) {
	sets, err := c.sets(ctx)
	if err != nil {
		return "", err
	}
	isSet := slices.Contains(setNames(sets), name)
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Pod{})
	switch {
	case err == nil && isSet:
		return "", fmt.Errorf("%s is a SidecarSet, and a pod in namespace %s: say sidecarset/%[1]s or pod/%[1]s", name, namespace)
	case isSet:
		return "sidecarset", nil
	case apierrors.IsNotFound(err) && c.lacksNamespace(ctx, namespace):
		return "", fmt.Errorf("there is no SidecarSet %q, and %w; %s", name, noNamespace(namespace), others(sets))
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is neither a SidecarSet %q nor such a pod in namespace %s (-n); %s", name, namespace, others(sets))
	case err != nil:
		return "", explain(err, "get pod "+namespace+"/"+name)
	}
	return "pod", nil
}

func (s *shared) whyPod(ctx context.Context, c *cluster, key client.ObjectKey) (model, error) {
	in := view.PodWhyInput{Pod: &corev1.Pod{}, SystemNamespace: c.systemNamespace}
	err := c.Get(ctx, key, in.Pod)
	if err != nil {
		return nil, explain(err, "get pod "+key.String())
	}
	if in.Sets, err = c.sets(ctx); err != nil {
		return nil, err
	}
	if in.NamespaceLabels, err = c.namespaceLabels(ctx)(key.Namespace); err != nil {
		return nil, err
	}
	now := s.now()
	in.Webhook, in.Nodes, in.Fault = s.webhook(ctx, c), c.nodes(ctx, now), c.webhookFault(ctx, c.fault(ctx, now), in.Sets...)
	in.Revisions = func(set *v1alpha1.SidecarSet) []*appsv1.ControllerRevision {
		found, _ := c.revisions(ctx, set) // Without revisions, the output states that the changed field is unknown.
		return found
	}
	return view.NewPodWhy(in), nil
}

// webhook reads the webhook of pods. If the webhook cannot be read, the method webhook prints a note about
// the consequence.
func (s *shared) webhook(ctx context.Context, c *cluster) view.Webhook {
	installed, err := kube.PodWebhook(ctx, c)
	if err != nil {
		_, _ = fmt.Fprintf(s.ErrOut, "Note: %v; pods that it is not called for may be listed as missing\n", s.suggestedError(explain(err, "get the webhook of pods")))
	}
	return view.Webhook{Installed: installed, Absent: installed == nil && err == nil}
}

func (s *shared) whySet(ctx context.Context, c *cluster, name string) (model, error) {
	set, err := c.set(ctx, name)
	if err != nil {
		return nil, err
	}
	in, err := c.inputWithRevisions(ctx, set)
	if err != nil {
		return nil, err
	}
	also := c.reads(ctx, set, s.readRun, s.now())
	also.addTo(in)
	in.Webhook = s.webhook(ctx, c)
	why, err := view.NewRolloutWhy(in)
	if err != nil {
		return nil, err
	}
	return why, nil
}
