package crd

import (
	"context"
	"fmt"
	"io"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// webhookService is the name of the Service of config/deploy. configurationName is the name of both webhook
// configurations.
const (
	webhookService    = "outrigger-webhook"
	configurationName = "outrigger"
)

const (
	// deletionInterval is the time between two checks whether an object is deleted.
	deletionInterval = 500 * time.Millisecond
	// deletionTimeout limits the wait for the deletion of an object and its pods, because pods on a node that
	// does not respond are not deleted.
	deletionTimeout = time.Minute
)

// Uninstallation removes the roles in an order in which the API server never calls a missing webhook.
// Uninstallation does not delete SidecarSets, the CustomResourceDefinition and revisions. A missing object is
// not an error.
type Uninstallation struct {
	Client          client.Client
	SystemNamespace string
	Out             io.Writer
}

// Run returns an error, and deletes nothing, if the API server calls a webhook of another namespace. Otherwise, Run
// deletes the webhook configurations and then the Deployments, and waits at most deletionTimeout for the
// deletion of each object. Run then suspends the conversion, even if a pod is not deleted because its node does
// not respond.
func (u Uninstallation) Run(ctx context.Context) error {
	if err := u.checkNamespace(ctx); err != nil {
		return err
	}
	configurations := []*metav1.PartialObjectMetadata{
		named("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "", configurationName),
		named("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "", configurationName),
	}
	if err := u.remove(ctx, configurations); err != nil {
		return err
	}
	var deployments []*metav1.PartialObjectMetadata
	for _, name := range []string{"outrigger-operator", "outrigger-worker", webhookService} {
		deployments = append(deployments, named("apps", "Deployment", u.SystemNamespace, name))
	}
	if err := u.remove(ctx, deployments); err != nil {
		return err
	}
	return u.stopConverting(ctx)
}

// checkNamespace compares SystemNamespace with the namespace of the Service that the webhook configurations call. The
// configurations are cluster-scoped, so another installation would lose its webhook.
func (u Uninstallation) checkNamespace(ctx context.Context) error {
	validating, mutating := &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
	for _, configuration := range []client.Object{validating, mutating} {
		if err := u.Client.Get(ctx, client.ObjectKey{Name: configurationName}, configuration); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read the webhook configuration %s: %w", configurationName, err)
		}
	}
	var called []admissionregistrationv1.WebhookClientConfig
	for _, webhook := range validating.Webhooks {
		called = append(called, webhook.ClientConfig)
	}
	for _, webhook := range mutating.Webhooks {
		called = append(called, webhook.ClientConfig)
	}
	for _, config := range called {
		if config.Service != nil && config.Service.Namespace != u.SystemNamespace {
			return fmt.Errorf("nothing is removed, because the API server calls the webhook of namespace %s and not of %s; to uninstall that installation, use --namespace=%s; to remove only a Helm release, use helm uninstall --no-hooks",
				config.Service.Namespace, u.SystemNamespace, config.Service.Namespace)
		}
	}
	return nil
}

func named(group, kind, namespace, name string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	return object
}

// remove deletes the objects, and waits until the objects and their dependents are deleted, or until
// deletionTimeout. remove waits because a running webhook role would claim the conversion again.
func (u Uninstallation) remove(ctx context.Context, objects []*metav1.PartialObjectMetadata) error {
	var deleted []*metav1.PartialObjectMetadata
	for _, object := range objects {
		err := u.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationForeground))
		switch {
		case err == nil:
			deleted = append(deleted, object)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("delete %s %s: %w", object.Kind, object.Name, err)
		default:
			if err := u.say("%s %s does not exist%s", object.Kind, object.Name, inNamespace(object)); err != nil {
				return err
			}
		}
	}
	for _, object := range deleted {
		err := wait.PollUntilContextTimeout(ctx, deletionInterval, deletionTimeout, true, func(ctx context.Context) (bool, error) {
			err := u.Client.Get(ctx, client.ObjectKeyFromObject(object), named(object.GroupVersionKind().Group, object.Kind, "", ""))
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if wait.Interrupted(err) && ctx.Err() == nil {
			if err := u.say("%s %s or one of its pods is not deleted within %s; continuing", object.Kind, object.Name, deletionTimeout); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("wait until %s %s and its pods are deleted: %w", object.Kind, object.Name, err)
		}
		if err := u.say("%s %s is deleted", object.Kind, object.Name); err != nil {
			return err
		}
	}
	return nil
}

func inNamespace(object client.Object) string {
	if object.GetNamespace() == "" {
		return ""
	}
	return " in namespace " + object.GetNamespace()
}

// stopConverting suspends the conversion, unless the conversion belongs to another installation.
func (u Uninstallation) stopConverting(ctx context.Context) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		definition, err := Get(ctx, u.Client)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if !Converts(definition) || !u.ours(definition.Spec.Conversion.Webhook) {
			return u.say("CustomResourceDefinition %s stays as it is", Name)
		}
		if _, err := SuspendConversion(ctx, u.Client); err != nil {
			return err
		}
		return u.say("CustomResourceDefinition %s stays and needs no webhook", Name)
	})
}

func (u Uninstallation) ours(conversion *apiextensionsv1.WebhookConversion) bool {
	if conversion == nil || conversion.ClientConfig == nil || conversion.ClientConfig.Service == nil {
		return false
	}
	service := conversion.ClientConfig.Service
	return service.Namespace == u.SystemNamespace && service.Name == webhookService
}

func (u Uninstallation) say(format string, args ...any) error {
	_, err := fmt.Fprintf(u.Out, format+"\n", args...)
	return err
}
