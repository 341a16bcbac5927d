package realnode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/outrigger/outrigger/dev/cluster"
)

// Name is the name of the node.
const Name = "real"

// These are the names of the processes.
const (
	Containerd = "containerd"
	Kubelet    = "kubelet"
)

// Node is a node with containerd and a kubelet. The containers of the node really run.
type Node struct {
	stack *cluster.Cluster
	// bin is the directory of the kubelet. state is the directory of all files of the node.
	bin, state string
	// plugins is the directory of the CNI plugins.
	plugins string
}

// Start runs a node of the cluster with images, and returns when the node is Ready. Start must be called
// inside Contain, with the state directory of Contain. The processes of the node belong to the group of the
// cluster. bin is the directory of the kubelet. images must include PauseImage.
func Start(ctx context.Context, stack *cluster.Cluster, bin, state string, images ...Image) (*Node, error) {
	plugins, err := networkPlugins()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(bin, Kubelet)); err != nil {
		return nil, fmt.Errorf("program %s is missing (run tools/build.sh %s): %w", Kubelet, Kubelet, err)
	}
	n := &Node{stack: stack, bin: bin, state: state, plugins: plugins}
	if err := n.startContainerd(ctx); err != nil {
		return nil, err
	}
	for _, image := range images {
		if err := n.Load(ctx, image); err != nil {
			return nil, err
		}
	}
	if err := n.startKubelet(ctx); err != nil {
		return nil, err
	}
	return n, n.awaitReady(ctx)
}

func (n *Node) path(elements ...string) string {
	return filepath.Join(append([]string{n.state}, elements...)...)
}

// write writes a configuration file to the state directory.
func (n *Node) write(content string, elements ...string) error {
	file := n.path(elements...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("configure the node: %w", err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		return fmt.Errorf("configure the node: %w", err)
	}
	return nil
}

func (n *Node) client() (kubernetes.Interface, error) {
	config, err := n.stack.RESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// admit binds the user of a kubelet to the ClusterRole system:node.
func admit(ctx context.Context, client kubernetes.Interface, user string) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("allow the kubelet what it does: %w", err)
	}
	return nil
}

// awaitReady waits until pods can be scheduled to the node.
func (n *Node) awaitReady(ctx context.Context) error {
	client, err := n.client()
	if err != nil {
		return err
	}
	nodes := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.OneTermEqualSelector("metadata.name", Name))
	_, err = watchtools.UntilWithSync(ctx, nodes, &corev1.Node{}, nil, func(event watch.Event) (bool, error) {
		node, ok := event.Object.(*corev1.Node)
		return ok && cluster.Schedulable(node), nil
	})
	if err != nil {
		return fmt.Errorf("the node is not ready (see the logs of kubelet and containerd): %w", err)
	}
	return nil
}
