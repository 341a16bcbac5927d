package realnode

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/outrigger/outrigger/dev/cluster/process"
)

// containerdConfig is the configuration of containerd. The configuration disables features that leave state on
// the machine, such as AppArmor profiles and files below /opt.
const containerdConfig = `version = 2
root = %[1]q
state = %[2]q
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = %[3]q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[4]q
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_tcp_service = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[5]q
    conf_dir = %[6]q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`

// networkConfig is the configuration of a network whose pods can be reached only from the node.
const networkConfig = `{
  "cniVersion": "0.4.0", "name": "pods",
  "plugins": [{
    "type": "bridge", "bridge": "pods", "isGateway": true,
    "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.89.0.0/17"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`

func (n *Node) socket() string { return n.path("containerd.sock") }

func (n *Node) startContainerd(ctx context.Context) error {
	config := fmt.Sprintf(containerdConfig, n.path("containerd", "root"), n.path("containerd", "state"), n.socket(), PauseImage,
		n.plugins, n.path("cni"))
	if err := n.write(config, "containerd.toml"); err != nil {
		return err
	}
	if err := n.write(fmt.Sprintf(networkConfig, n.path("addresses")), "cni", "pods.conflist"); err != nil {
		return err
	}
	program, err := exec.LookPath("containerd")
	if err != nil {
		return fmt.Errorf("find containerd: %w", err)
	}
	return n.stack.Start(ctx, process.Spec{
		Name: Containerd, Path: program, Args: []string{"--config=" + n.path("containerd.toml")},
		Ready: func(ctx context.Context) error { return n.ctr(ctx, "version") },
	})
}

// Load imports an image into the containerd of the node. Afterwards, containerd finds the image by name and
// by digest, like a pulled image.
func (n *Node) Load(ctx context.Context, image Image) error {
	repository, _, ok := strings.Cut(image.Name, ":")
	if !ok {
		return fmt.Errorf("image %s: no tag", image.Name)
	}
	archive, err := os.CreateTemp(n.state, "image-*.tar")
	if err != nil {
		return fmt.Errorf("image %s: %w", image.Name, err)
	}
	defer func() { _ = os.Remove(archive.Name()) }() // The state directory is removed at the end in any case.
	err = image.write(archive)
	if closed := archive.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = n.ctr(ctx, "images", "import", "--digests", "--base-name="+repository, archive.Name())
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", image.Name, err)
	}
	return nil
}

// ctr runs ctr, the client of containerd, in the containerd namespace that the kubelet uses.
func (n *Node) ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address=" + n.socket(), "--namespace=k8s.io"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %s: %w", strings.Join(args, " "), strings.TrimSpace(string(out)), err)
	}
	return nil
}
