package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/config/webhook"
)

// InstallWebhooks applies config/webhook with url in place of the Service. If an installed webhook has a URL,
// InstallWebhooks keeps this URL, because the webhook role updates the URL.
func (c *Cluster) InstallWebhooks(ctx context.Context, url string) error {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(webhook.Manifests), len(webhook.Manifests))
	for {
		manifest := &unstructured.Unstructured{}
		err := documents.Decode(&manifest.Object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = installWebhooks(ctx, c.Kube, manifest, url)
		}
		if err != nil {
			return fmt.Errorf("install the webhook configurations: %w", err)
		}
	}
}

func installWebhooks(ctx context.Context, kube client.Client, manifest *unstructured.Unstructured, url string) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(manifest.GroupVersionKind())
	err := kube.Get(ctx, client.ObjectKeyFromObject(manifest), live)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	installed := urls(live)
	if err == nil && len(installed) == 0 {
		// Server-side apply adds the URL to a webhook that has a Service, and a webhook cannot have both.
		if err := kube.Delete(ctx, live); err != nil {
			return err
		}
	}
	for _, hook := range hooks(manifest) {
		path, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "path")
		hook["clientConfig"] = map[string]any{"url": cmp.Or(installed[fmt.Sprint(hook["name"])], url+path)}
	}
	return kube.Apply(ctx, client.ApplyConfigurationFromUnstructured(manifest), client.FieldOwner("stack"), client.ForceOwnership)
}

// hooks returns the webhooks of a webhook configuration.
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
