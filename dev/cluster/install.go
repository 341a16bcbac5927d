package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd/api"
	watchtools "k8s.io/client-go/tools/watch"
)

const tokenSeconds = 365 * 24 * 60 * 60

func (c *Cluster) client() (kubernetes.Interface, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// install makes the cluster ready for the roles: system namespace, manifests and
// one kubeconfig per role, so that each runs under its own RBAC.
func (c *Cluster) install(ctx context.Context, client kubernetes.Interface) error {
	if err := c.CreateSystemNamespace(ctx); err != nil {
		return err
	}
	for _, folder := range c.options.Manifests {
		if err := c.Apply(ctx, folder); err != nil {
			return err
		}
	}
	for _, role := range []string{Operator, Worker, Webhook} {
		if err := c.writeRoleKubeconfig(ctx, client, role); err != nil {
			return err
		}
	}
	return awaitServiceAccount(ctx, client, metav1.NamespaceDefault)
}

// Apply applies a kustomize folder as the admin and waits until its CRDs are served.
// SidecarSets that are there can be read from then on, whoever converted them.
func (c *Cluster) Apply(ctx context.Context, folder string) error {
	if err := c.suspendConversion(ctx); err != nil {
		return fmt.Errorf("apply %s: %w", folder, err)
	}
	out, err := c.kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--output=name", "--kustomize", folder)
	if err != nil {
		return fmt.Errorf("apply %s: %w", folder, err)
	}
	for applied := range strings.FieldsSeq(out) {
		kind, name, _ := strings.Cut(applied, "/")
		if !strings.HasPrefix(kind, "customresourcedefinition.") {
			continue
		}
		if err := c.AwaitEstablished(ctx, name); err != nil {
			return fmt.Errorf("apply %s: %w", folder, err)
		}
	}
	return nil
}

func (c *Cluster) kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.binary("kubectl"), append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %s: %w", args[0], strings.TrimSpace(stderr.String()), err)
	}
	return stdout.String(), nil
}

// CreateSystemNamespace creates namespace SystemNamespace unless it exists.
func (c *Cluster) CreateSystemNamespace(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: SystemNamespace}}
	_, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", SystemNamespace, err)
	}
	return nil
}

func (c *Cluster) writeRoleKubeconfig(ctx context.Context, client kubernetes.Interface, role string) error {
	account := "outrigger-" + role
	seconds := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := client.CoreV1().ServiceAccounts(SystemNamespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("request a token of service account %s/%s (config/rbac defines it): %w", SystemNamespace, account, err)
	}
	return c.writeKubeconfig(role, &api.AuthInfo{Token: answer.Status.Token})
}

// awaitServiceAccount waits for the account without which no pod is admitted.
func awaitServiceAccount(ctx context.Context, client kubernetes.Interface, namespace string) error {
	accounts := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "serviceaccounts", namespace,
		fields.OneTermEqualSelector("metadata.name", "default"))
	_, err := watchtools.UntilWithSync(ctx, accounts, &corev1.ServiceAccount{}, nil,
		func(event watch.Event) (bool, error) { return event.Type == watch.Added, nil })
	if err != nil {
		return fmt.Errorf("wait for service account %s/default (see the log of the controller manager): %w", namespace, err)
	}
	return nil
}
