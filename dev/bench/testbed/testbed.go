// Package testbed is a local cluster that a bench has for itself, and its clients.
package testbed

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube"
)

// What pods run before and after they are injected.
const (
	AppLabel = "app"
	Sidecar  = "side"
	appImage = "app:1"

	podsPerNode = 1000
)

// Testbed is a running cluster and clients that nothing slows down.
type Testbed struct {
	Stack    *cluster.Cluster
	Config   *rest.Config
	Kube     client.Client
	Temporal sdk.Client
	dir      string
}

// Start runs a cluster with nodes for so many pods, and none of Outrigger's roles.
// Close ends it and removes its state.
func Start(ctx context.Context, pods int) (*Testbed, error) {
	dir, err := os.MkdirTemp(memory(), "outrigger-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a state folder: %w", err)
	}
	t := &Testbed{dir: dir}
	t.Stack, err = cluster.Start(ctx, cluster.Options{Dir: filepath.Join(dir, "stack"), Nodes: pods/podsPerNode + 1})
	if err == nil {
		err = t.connect()
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close ends the cluster and removes its state.
func (t *Testbed) Close() {
	if t.Temporal != nil {
		t.Temporal.Close()
	}
	if t.Stack != nil {
		t.Stack.Shutdown()
	}
	_ = os.RemoveAll(t.dir) // nothing is left to do about it
}

func (t *Testbed) connect() (err error) {
	if t.Config, err = t.Stack.RESTConfig(); err != nil {
		return err
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return err
	}
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("register API types: %w", err)
	}
	if t.Kube, err = client.New(t.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	t.Temporal, err = sdk.NewLazyClient(sdk.Options{
		HostPort: t.Stack.TemporalAddress, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return fmt.Errorf("connect to Temporal: %w", err)
	}
	return nil
}

// StartRoles starts operator, webhook, and so many workers with further flags.
func (t *Testbed) StartRoles(ctx context.Context, workers int, workerFlags ...string) error {
	for _, role := range []string{cluster.Operator, cluster.Webhook} {
		if _, err := t.Stack.StartRole(ctx, role); err != nil {
			return err
		}
	}
	for i := range workers {
		if _, err := t.Stack.StartRole(ctx, WorkerName(i+1), workerFlags...); err != nil {
			return err
		}
	}
	return nil
}

// WorkerName is the process name of the nth worker; the first is number 1.
func WorkerName(n int) string { return fmt.Sprintf("%s-%d", cluster.Worker, n) }

// PodTemplate is the template of a pod without sidecars.
func PodTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: appImage}}}}
}

// CreateNamespace creates a namespace.
func (t *Testbed) CreateNamespace(ctx context.Context, name string) error {
	if err := t.Kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// CreateDeployment creates a Deployment whose pods carry its name as AppLabel.
func (t *Testbed) CreateDeployment(ctx context.Context, namespace, name string, pods int, template corev1.PodTemplateSpec) error {
	labels, replicas := map[string]string{AppLabel: name}, int32(pods)
	template.Labels = labels
	err := t.Kube.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
		},
	})
	if err != nil {
		return fmt.Errorf("create deployment %s/%s: %w", namespace, name, err)
	}
	return nil
}

// memory is a folder that no disk slows down; empty where there is none.
func memory() string {
	const shared = "/dev/shm"
	if info, err := os.Stat(shared); err == nil && info.IsDir() {
		return shared
	}
	return ""
}
