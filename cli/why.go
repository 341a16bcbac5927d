package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/cli/output"
	"github.com/outrigger/outrigger/cli/view"
)

// Names in config/webhook.
const (
	webhookConfiguration = "outrigger"
	podWebhook           = "pods.outrigger.io"
)

func newWhy(s *shared) *cobra.Command {
	var o output.Flag
	cmd := &cobra.Command{
		Use:   "why (POD | NAMESPACE/POD | SET | pod/NAME | sidecarset/NAME)",
		Short: "Say why a pod is or is not injected and upgraded, or why a rollout does not move",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: s.completeSets,
		RunE: func(cmd *cobra.Command, args []string) error {
			model, err := s.why(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return s.print(o, model)
		},
	}
	o.Add(cmd, output.JSON, output.YAML)
	return cmd
}

func (s *shared) why(ctx context.Context, about string) (text, error) {
	c, err := s.cluster()
	if err != nil {
		return nil, err
	}
	namespace, _, err := s.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the namespace: %w", err)
	}
	kind, name, ok := strings.Cut(about, "/")
	if !ok {
		if kind, err = c.kindOf(ctx, namespace, about); err != nil {
			return nil, err
		}
		name = about
	}
	switch {
	case slices.Contains([]string{"pod", "pods", "po"}, kind):
		return c.whyPod(ctx, client.ObjectKey{Namespace: namespace, Name: name})
	case slices.Contains(setKinds(), kind):
		return s.whySet(ctx, c, name)
	}
	// Other commands name pods so.
	model, err := c.whyPod(ctx, client.ObjectKey{Namespace: kind, Name: name})
	if apierrors.IsNotFound(err) && !missingKind(err) {
		return nil, fmt.Errorf("there is no pod %s in namespace %s: use pod/NAME, NAMESPACE/POD or sidecarset/NAME", name, kind)
	}
	return model, err
}

// kindOf finds out what has a name.
func (c *cluster) kindOf(ctx context.Context, namespace, name string) (string, error) {
	sets, err := c.sets(ctx)
	if err != nil {
		return "", err
	}
	isSet := false
	for i := range sets {
		isSet = isSet || sets[i].Name == name
	}
	var pod corev1.Pod
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod)
	switch {
	case err == nil && isSet:
		return "", fmt.Errorf("%s is a SidecarSet, and a pod in namespace %s: say sidecarset/%[1]s or pod/%[1]s", name, namespace)
	case isSet:
		return "sidecarset", nil
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is neither a SidecarSet %q nor such a pod in namespace %s (-n)", name, namespace)
	case err != nil:
		return "", explain(err, "get pod "+namespace+"/"+name)
	}
	return "pod", nil
}

func (c *cluster) whyPod(ctx context.Context, key client.ObjectKey) (text, error) {
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
	var configuration admissionv1.MutatingWebhookConfiguration
	err = c.Get(ctx, client.ObjectKey{Name: webhookConfiguration}, &configuration)
	// Who may not see it learns the rest.
	in.WebhookAbsent = apierrors.IsNotFound(err)
	for i := range configuration.Webhooks {
		if configuration.Webhooks[i].Name == podWebhook {
			in.Webhook = &configuration.Webhooks[i]
		}
	}
	return view.NewPodWhy(in)
}

func (s *shared) whySet(ctx context.Context, c *cluster, name string) (text, error) {
	ask, done := s.lookOnly()
	defer done()
	set, err := c.set(ctx, name)
	if err != nil {
		return nil, err
	}
	in, err := c.rolloutInput(ctx, set, ask(ctx, set))
	if err != nil {
		return nil, err
	}
	model, err := view.NewRollout(in)
	if err != nil {
		return nil, err
	}
	missing, err := view.Missing(set, in.Pods, in.NamespaceLabels, c.systemNamespace)
	if err != nil {
		return nil, err
	}
	return view.NewRolloutWhy(model, in, len(missing)), nil
}
