package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube/crd"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/temporal"
)

// checkTimeout limits the check of one part.
const checkTimeout = 15 * time.Second

// installation contains the clients and the options of the command check.
type installation struct {
	*cluster
	shared    *shared
	taskQueue string
	// withoutUser omits the check of the permissions of the user.
	withoutUser bool
}

func newCheck(s *shared) *cobra.Command {
	var queue string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the parts of the installation",
		Long: "Check the definitions of SidecarSets and RolloutPolicies, the webhook, the operator, Temporal, the workers, and the\n" +
			"permissions of the user.\n" +
			"Each line has the next step. The webhook is called for a pod in the namespace of -n that is not stored.\n" +
			"The exit code is 1 if a part failed.",
		Example: `  kubectl sidecarset check
  kubectl sidecarset check -n shop   # call the webhook for a pod of namespace shop
  kubectl sidecarset check -o json`,
		Args: takes(0),
	}
	cmd.Flags().StringVar(&queue, "task-queue", "", "Temporal task `queue` of the workers; empty: the UID of namespace kube-system")
	return s.printsChecks(cmd, &queue, false)
}

// NewCheck returns the command check of the outrigger binary, which runs in a pod. kubeconfig and
// systemNamespace point to flags of the caller, and are read when the command runs. The permissions of the user
// are not checked, because the service account of the pod runs no other command.
func NewCheck(streams genericiooptions.IOStreams, kubeconfig, systemNamespace *string) *cobra.Command {
	s := &shared{IOStreams: streams, config: genericclioptions.NewConfigFlags(true), now: time.Now}
	s.config.KubeConfig = kubeconfig
	s.cluster = func() (*cluster, error) {
		s.systemNamespace = *systemNamespace
		return s.connectCluster()
	}
	var queue string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the parts of the installation",
		Long: "Check the definitions of SidecarSets and RolloutPolicies, the webhook, the operator, Temporal and the workers.\n" +
			"Each line has the next step. The exit code is 1 if a part failed.",
		Example: "  outrigger check\n  outrigger check --pod-namespace=shop   # call the webhook for a pod of namespace shop",
		Args:    takes(0),
	}
	s.temporal.AddTo(cmd.Flags())
	s.keys.AddTo(cmd.Flags())
	cmd.Flags().StringVar(s.config.Namespace, "pod-namespace", "default", "`namespace` of the pod for which the webhook is called; the pod is not stored")
	cmd.Flags().StringVar(&queue, "task-queue", "", "Temporal task `queue` of the workers; empty: the UID of namespace kube-system")
	return s.printsChecks(cmd, &queue, true)
}

func (s *shared) printsChecks(cmd *cobra.Command, queue *string, withoutUser bool) *cobra.Command {
	return s.prints(cmd, &output.Flag{}, func(ctx context.Context, c *cluster, _ []string) (model, error) {
		checks := (&installation{c, s, *queue, withoutUser}).check(ctx)
		if failed := checks.Failed(); len(failed) > 0 {
			return checks, fmt.Errorf("failed: %s", strings.Join(failed, ", "))
		}
		return checks, nil
	}, output.JSON, output.YAML)
}

// check checks all parts concurrently, because the check of a part that does not respond takes several seconds.
// The results have the order of parts.
func (i *installation) check(ctx context.Context) view.Checks {
	parts := []struct {
		name  string
		check func(context.Context) (string, error)
	}{
		{"definition", i.definition},
		{"policies", i.policies},
		{"webhook", i.webhook},
		{"operator", i.operator},
		{"temporal", i.temporalServer},
		{"workers", i.workers},
		{"rights", i.rights},
	}
	if i.withoutUser {
		parts = parts[:len(parts)-1]
	}
	checks := make(view.Checks, len(parts))
	var running sync.WaitGroup
	for n, part := range parts {
		running.Go(func() {
			short, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			message, err := part.check(short)
			checks[n] = newCheckResult(part.name, message, err)
		})
	}
	running.Wait()
	return checks
}

func newCheckResult(part, message string, err error) view.Check {
	if err == nil {
		return view.Check{Part: part, State: view.CheckOK, Message: message}
	}
	state := view.CheckFailed
	if _, unknown := errors.AsType[unknownError](err); unknown {
		state = view.CheckUnknown
	}
	return view.Check{Part: part, State: state, Message: err.Error()}
}

// unknownError is the error of a part whose state cannot be determined.
type unknownError struct{ cause string }

func (e unknownError) Error() string { return e.cause }

// failure returns the error of a check that cannot read a part. If the user has no permission to read the part,
// failure returns an unknownError.
func (i *installation) failure(err error, action string) error {
	if apierrors.IsForbidden(err) {
		return unknownError{action + ": not allowed"}
	}
	return explain(err, action)
}

func (i *installation) definition(ctx context.Context) (string, error) {
	definition, err := crd.Get(ctx, i)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("CustomResourceDefinition %s does not exist: install Outrigger, see docs/install.md", crd.Name)
	}
	if err != nil {
		return "", i.failure(err, "read CustomResourceDefinition "+crd.Name)
	}
	switch {
	case !crd.KeepsFields(definition):
		return "", errors.New("no webhook converts SidecarSets, and one version of the CustomResourceDefinition lacks fields of the other version: start the webhook, which adds the fields")
	case !crd.Converts(definition):
		return "no webhook converts SidecarSets; each version has the fields of the other", nil
	}
	if err := i.converts(ctx, definition); err != nil {
		return "", err
	}
	return "serves " + strings.Join(definition.Status.StoredVersions, ", ") + " from storage, and a webhook converts", nil
}

// converts reads a SidecarSet in each served version, so that the API server calls the conversion webhook.
// The API server reads a single object from storage, but may read a list from its cache. If there are no
// SidecarSets, the API server does not call the webhook.
func (i *installation) converts(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition) error {
	for _, version := range definition.Spec.Versions {
		if !version.Served {
			continue
		}
		kind := schema.GroupVersionKind{Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.Kind}
		switch err := i.readOne(ctx, kind); {
		case err == nil:
		case strings.Contains(err.Error(), "conversion webhook"), errors.Is(err, context.DeadlineExceeded) && !version.Storage:
			return fmt.Errorf("the webhook that converts SidecarSets does not respond, so kubectl cannot read them in %s: %w: %s",
				version.Name, err, i.podsOf(ctx, "webhook"))
		default:
			return i.failure(err, "read SidecarSets in "+version.Name)
		}
	}
	return nil
}

// readOne reads the first object of a kind. The timeout of the read is shorter than the thirty seconds for
// which an API server waits for a conversion webhook.
func (i *installation) readOne(ctx context.Context, kind schema.GroupVersionKind) error {
	ctx, cancel := context.WithTimeout(ctx, (webhookSeconds+1)*time.Second)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := i.live.List(ctx, list, client.Limit(1)); err != nil || len(list.Items) == 0 {
		return err
	}
	one := &metav1.PartialObjectMetadata{}
	one.SetGroupVersionKind(kind)
	return client.IgnoreNotFound(i.live.Get(ctx, client.ObjectKeyFromObject(&list.Items[0]), one))
}

// policies checks the RolloutPolicies. A missing CustomResourceDefinition is not a failure, because an older
// installation works without RolloutPolicies.
func (i *installation) policies(ctx context.Context) (string, error) {
	var all outriggerv1.RolloutPolicyList
	err := i.List(ctx, &all)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return "", unknownError{"RolloutPolicies are not installed, so no rollout has steps: apply config/crd"}
	case err != nil:
		return "", i.failure(err, "list RolloutPolicies")
	}
	for i := range all.Items {
		policy := &all.Items[i]
		if err := stage.CheckWindows(policy.Spec.Windows); err != nil {
			return "", fmt.Errorf("RolloutPolicy %s: %w, so its rollouts do not start; correct it: kubectl edit rolloutpolicy %[1]s", policy.Name, err)
		}
		if evictions := policy.Status.Evictions; evictions != nil && (evictions.Overdue || len(evictions.Failed) > 0) {
			return "", fmt.Errorf("RolloutPolicy %s: %s; correct the cause, and edit the policy: kubectl edit rolloutpolicy %[1]s", policy.Name, evictions.Message)
		}
	}
	return fmt.Sprintf("RolloutPolicies are installed (%d)", len(all.Items)) + i.freezesWithoutEffect(ctx), nil
}

// freezesWithoutEffect returns notes about the RolloutFreezes that have ended or that select no SidecarSet. The
// API server accepts these RolloutFreezes, because a user may apply a manifest again after the end of the
// freeze. If the RolloutFreezes cannot be read, freezesWithoutEffect returns an empty string.
func (i *installation) freezesWithoutEffect(ctx context.Context) (notes string) {
	var all outriggerv1.RolloutFreezeList
	if i.List(ctx, &all) != nil {
		return ""
	}
	for n := range all.Items {
		freeze := &all.Items[n]
		if until := freeze.Spec.Until; until != nil && !until.After(i.shared.now()) {
			notes += fmt.Sprintf("; RolloutFreeze %s ended at %s: kubectl sidecarset unfreeze %[1]s", freeze.Name, until.UTC().Format(time.RFC3339))
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&freeze.Spec.Selector)
		if err != nil {
			continue // A freeze with an invalid selector applies to every SidecarSet.
		}
		requirements, _ := selector.Requirements()
		if label := stage.Contradiction(requirements); label != "" {
			notes += fmt.Sprintf("; RolloutFreeze %s selects nothing, because its requirements for label %s exclude each other: kubectl edit rolloutfreeze %[1]s", freeze.Name, label)
		}
	}
	return notes
}

// temporalServer checks that the Temporal namespace has the search attributes, without which no run starts.
func (i *installation) temporalServer(ctx context.Context) (string, error) {
	r, err := i.shared.connect()
	if err != nil {
		return "", err
	}
	defer r.Close()
	short, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	known, err := r.OperatorService().ListSearchAttributes(short, &operatorservice.ListSearchAttributesRequest{Namespace: r.options.Namespace})
	_, denied := errors.AsType[*serviceerror.PermissionDenied](err)
	if _, absent := errors.AsType[*serviceerror.Unimplemented](err); denied || absent {
		return "", unknownError{r.endpoint() + " answers; you may not list its search attributes"}
	}
	if temporal.IsUnreachable(err) {
		return "", i.unreachedTemporal(ctx, r.explain(err), short.Err() != nil)
	}
	if err != nil {
		return "", r.explain(err)
	}
	for _, name := range slices.Sorted(maps.Keys(temporal.SearchAttributes())) {
		if _, ok := known.GetCustomAttributes()[name]; !ok {
			return "", fmt.Errorf("%s lacks search attribute %s: outrigger temporal setup", r.endpoint(), name)
		}
	}
	return r.endpoint() + " answers", nil
}

// unreachedTemporal returns the error of a command that cannot connect to Temporal. If the operator reports no
// outage, the address of this command may be wrong. late is set if the call timed out. In this case, the report
// of the operator is not used, because the operator takes longer to report a Temporal that accepts connections
// but does not respond.
func (i *installation) unreachedTemporal(ctx context.Context, err error, late bool) error {
	var fault view.Fault
	known := false
	if !late {
		fault, known = i.reportOfTemporal(ctx)
	}
	if !known || fault.Reason == v1alpha1.ReasonTemporalUnavailable {
		return fmt.Errorf("%w; %s", err, i.temporalNext(ctx))
	}
	err = fmt.Errorf("%w; the operator reports no outage of Temporal (a report takes up to ten seconds), so the address of this command may be wrong: "+
		"set --temporal-address or TEMPORAL_ADDRESS to the Temporal of the operator, or forward a port to this Temporal", err)
	if fault != (view.Fault{}) {
		return fmt.Errorf("%w, but: %s", err, fault.Message)
	}
	return err
}

// rights returns an error that lists the permissions that the user lacks, and the commands that need these
// permissions.
func (i *installation) rights(ctx context.Context) (string, error) {
	var denied []string
	for _, needed := range []struct{ verb, group, resource, namespace, commands, grant string }{
		{"get", v1alpha1.GroupVersion.Group, "sidecarsets", "", "all commands", "ClusterRole outrigger-view"},
		{"list", "", "pods", "", "status, plan, why, restart", "ClusterRole view"},
		{"list", "apps", "controllerrevisions", i.systemNamespace, "history, diff, undo", "ClusterRole view"},
		{"get", admissionregistrationv1.GroupName, "mutatingwebhookconfigurations", "", "restart, why, list --missing", "only ClusterRole cluster-admin has it"},
		{"create", "", "pods/eviction", "", "restart", "ClusterRole edit"},
		{"patch", v1alpha1.GroupVersion.Group, "sidecarsets", "", "set image, undo", "ClusterRole outrigger-edit"},
	} {
		resource, subresource, _ := strings.Cut(needed.resource, "/")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: needed.verb, Group: needed.group, Resource: resource, Subresource: subresource, Namespace: needed.namespace,
		}}}
		if err := i.live.Create(ctx, review); err != nil {
			return "", i.failure(err, "ask for the permissions of the user")
		}
		if !review.Status.Allowed {
			denied = append(denied, fmt.Sprintf("%s %s (%s; %s)", needed.verb, needed.resource, needed.commands, needed.grant))
		}
	}
	if len(denied) > 0 {
		return "", unknownError{"you may not " + strings.Join(denied, ", ") + ": ask for a ClusterRoleBinding to the named roles, or for these permissions"}
	}
	return "you may use all commands; Temporal decides about pause, resume, approve, promote, abort and retry", nil
}
