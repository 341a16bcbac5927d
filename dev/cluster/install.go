package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube/crd"
)

const (
	pollEvery  = 100 * time.Millisecond
	pollWithin = 3 * time.Minute
)

// install prepares the cluster for the roles and for pods. install creates the system namespace, applies the
// manifests, and waits for the default service account, because the API server rejects pods without this
// service account.
func (c *Cluster) install(ctx context.Context) error {
	if err := c.CreateSystemNamespace(ctx); err != nil {
		return err
	}
	for _, folder := range c.options.Manifests {
		if err := c.Apply(ctx, folder); err != nil {
			return err
		}
	}
	account := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "default"}
	return Poll(ctx, "wait for service account default/default (see the log of the controller manager)", pollWithin, func(ctx context.Context) error {
		return c.Kube.Get(ctx, account, &corev1.ServiceAccount{})
	})
}

// Poll calls request until request succeeds, for at most within.
func Poll(ctx context.Context, what string, within time.Duration, request func(context.Context) error) error {
	var cause error
	err := wait.PollUntilContextTimeout(ctx, pollEvery, within, true, func(ctx context.Context) (bool, error) {
		cause = request(ctx)
		return cause == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w (%w)", what, err, cause)
	}
	return nil
}

// Apply applies a kustomize directory as the admin and waits until its CRDs are served. Afterwards, existing
// SidecarSets can be read even while no conversion webhook runs.
func (c *Cluster) Apply(ctx context.Context, folder string) error {
	if err := c.suspendConversion(ctx); err != nil {
		return fmt.Errorf("apply %s: %w", folder, err)
	}
	out, err := c.Kubectl(ctx, nil, "apply", "--server-side", "--force-conflicts", "--output=name", "--kustomize", folder)
	if err != nil {
		return fmt.Errorf("apply %s: %w", folder, err)
	}
	for applied := range strings.FieldsSeq(out) {
		if name, found := strings.CutPrefix(applied, "customresourcedefinition.apiextensions.k8s.io/"); found {
			if err := c.AwaitEstablished(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// AwaitEstablished waits until a definition is served. AwaitEstablished retries, because kubectl wait fails
// while the definition has no conditions.
func (c *Cluster) AwaitEstablished(ctx context.Context, name string) error {
	return Poll(ctx, "wait for the definition "+name, pollWithin, func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, nil, "wait", "--for=condition=Established", "--timeout=1m", "crd/"+name)
		return err
	})
}

// suspendConversion removes the conversion webhook of an existing definition. An applied manifest may be
// invalid in combination with the existing conversion, and while no webhook runs, the API server cannot convert
// SidecarSets. The webhook role adds the conversion webhook again.
func (c *Cluster) suspendConversion(ctx context.Context) error {
	suspended, err := crd.SuspendConversion(ctx, c.Kube)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !suspended {
		return err
	}
	return Poll(ctx, "read SidecarSets without conversion", pollWithin, func(ctx context.Context) error {
		return c.Kube.List(ctx, &v1alpha1.SidecarSetList{})
	})
}

// Kubectl runs kubectl as the admin, and returns the trimmed output.
func (c *Cluster) Kubectl(ctx context.Context, stdin []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.binary("kubectl"), append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	return output(cmd)
}

// output runs a command without the Temporal configuration of the user, and returns the trimmed output.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), TemporalEnv()...), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(stdout.String()+stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// CreateSystemNamespace creates the namespace SystemNamespace if the namespace does not exist.
func (c *Cluster) CreateSystemNamespace(ctx context.Context) error {
	err := c.Kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: SystemNamespace}})
	if client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("create namespace %s: %w", SystemNamespace, err)
	}
	return nil
}
