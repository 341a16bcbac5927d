package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/outrigger/outrigger/config/webhook"
)

// InstallWebhooks applies config/webhook with an URL in place of the Service.
// Where an URL is installed already, it stays: the webhook role keeps that right.
// Nobody is asked before the role says so.
func (c *Cluster) InstallWebhooks(ctx context.Context, url string) error {
	config, err := c.RESTConfig()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("install the webhook configurations: %w", err)
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(webhook.Manifests), len(webhook.Manifests))
	for {
		manifest := &unstructured.Unstructured{}
		err := documents.Decode(&manifest.Object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = installWebhooks(ctx, client, manifest, url)
		}
		if err != nil {
			return fmt.Errorf("install the webhook configurations: %w", err)
		}
	}
}

func installWebhooks(ctx context.Context, client dynamic.Interface, manifest *unstructured.Unstructured, url string) error {
	kinds := map[string]string{
		"MutatingWebhookConfiguration": "mutatingwebhookconfigurations", "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
	}
	resource := client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: kinds[manifest.GetKind()]})
	live, err := resource.Get(ctx, manifest.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	var installed map[string]string
	if err == nil {
		if installed = urls(live); len(installed) == 0 {
			// It names a Service, and may not name both.
			if err := resource.Delete(ctx, manifest.GetName(), metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
	}
	for _, hook := range hooks(manifest) {
		path, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "path")
		at := url + path
		if last := installed[fmt.Sprint(hook["name"])]; last != "" {
			at = last
		}
		hook["clientConfig"] = map[string]any{"url": at}
	}
	_, err = resource.Apply(ctx, manifest.GetName(), manifest, metav1.ApplyOptions{FieldManager: "stack", Force: true})
	return err
}

// hooks are the object's own.
func hooks(of *unstructured.Unstructured) []map[string]any {
	all, _ := of.Object["webhooks"].([]any)
	found := make([]map[string]any, 0, len(all))
	for _, one := range all {
		if hook, ok := one.(map[string]any); ok {
			found = append(found, hook)
		}
	}
	return found
}

func urls(of *unstructured.Unstructured) map[string]string {
	found := map[string]string{}
	for _, hook := range hooks(of) {
		if url, _, _ := unstructured.NestedString(hook, "clientConfig", "url"); url != "" {
			found[fmt.Sprint(hook["name"])] = url
		}
	}
	return found
}
