package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/kube"
)

// webhookSeconds is the default of timeoutSeconds of the webhook of pods.
const webhookSeconds = 5

// webhook reads the configuration of the webhook and creates a pod in a dry run, so that the API server calls
// the webhook.
func (i *installation) webhook(ctx context.Context) (string, error) {
	namespace, _, err := i.shared.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("find the namespace of the context: %w", err)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "check"}}}}
	pod.Namespace, pod.GenerateName = namespace, "outrigger-check-"
	installed, unread := kube.PodWebhook(ctx, i)
	switch {
	case apierrors.IsForbidden(unread):
		// The dry run below also detects a webhook that does not respond.
	case unread != nil:
		return "", i.failure(unread, "read MutatingWebhookConfiguration "+kube.WebhookConfigurationName)
	default:
		if err := i.called(ctx, installed, pod); err != nil {
			return "", err
		}
	}
	if err := i.callWebhook(ctx, pod, installed); err != nil {
		return "", err
	}
	if unread != nil {
		return "", unknownError{"a pod is admitted, but you may not read whether the webhook is called for it"}
	}
	return "answers for pods of namespace " + namespace, nil
}

// called returns an error if the API server could admit the pod without a call of the webhook. called sets
// labels of pod for which the match condition of the webhook is true.
func (i *installation) called(ctx context.Context, installed *admissionregistrationv1.MutatingWebhook, pod *corev1.Pod) error {
	switch {
	case installed == nil:
		return fmt.Errorf("MutatingWebhookConfiguration %s has no webhook %s: new pods get no sidecars; install it again, see docs/install.md",
			kube.WebhookConfigurationName, kube.PodWebhookName)
	case len(installed.Rules) == 0:
		return fmt.Errorf("not activated yet: no replica has been reachable long enough: %s", i.podsOf(ctx, "webhook"))
	case ptr.Deref(installed.FailurePolicy, admissionregistrationv1.Fail) == admissionregistrationv1.Ignore:
		return unknownError{"the failurePolicy of the webhook is Ignore, so pods are admitted even if the webhook does not respond; the condition Injected of a SidecarSet shows whether the webhook responds"}
	}
	labels, err := kube.NamespaceLabels(ctx, i)(pod.Namespace)
	if apierrors.IsNotFound(err) {
		return noNamespace(pod.Namespace)
	}
	if err != nil {
		return i.failure(err, "get namespace "+pod.Namespace)
	}
	covers, followed := match.NewWebhook(installed, i.systemNamespace), match.ConditionOf(installed)
	pod.Labels = followed.Labels()
	switch {
	case !covers.Namespace(pod.Namespace, labels):
		return unknownError{"it is not called for pods of namespace " + pod.Namespace + ": name another one with -n"}
	case !covers.Pod(pod):
		return unknownError{"its objectSelector leaves out pods without labels"}
	case !followed.Everything() && pod.Labels == nil:
		return unknownError{"its match condition " + match.ConditionName + " excludes pods that no SidecarSet selects (--match-conditions); the condition Injected of a SidecarSet shows whether the webhook responds"}
	}
	return nil
}

// callWebhook creates a pod in a dry run, so that the API server calls the webhook. The API server may wait
// longer than timeoutSeconds, for example for other webhooks of pods.
func (i *installation) callWebhook(ctx context.Context, pod *corev1.Pod, installed *admissionregistrationv1.MutatingWebhook) error {
	seconds := int32(webhookSeconds)
	if installed != nil {
		seconds = ptr.Deref(installed.TimeoutSeconds, seconds)
	}
	short, cancel := context.WithTimeout(ctx, time.Duration(seconds+1)*time.Second)
	defer cancel()
	err := i.live.Create(short, pod, client.DryRunAll)
	switch {
	case err == nil, apierrors.IsInvalid(err), apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "violates PodSecurity") || strings.Contains(err.Error(), "exceeded quota")):
		// The API server makes these checks after it calls the mutating webhooks.
		return nil
	case strings.Contains(err.Error(), fmt.Sprintf("admission webhook %q denied", kube.PodWebhookName)):
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the API server did not admit a pod within %ds: this webhook, or another webhook of pods, does not respond: %s", seconds+1, i.podsOf(ctx, "webhook"))
	case strings.Contains(err.Error(), fmt.Sprintf("failed calling webhook %q", kube.PodWebhookName)):
		return fmt.Errorf("%w: %s", err, i.podsOf(ctx, "webhook"))
	}
	return unknownError{"the API server rejects a pod, maybe before it calls the webhook: " + err.Error() + "; name another namespace with -n"}
}
