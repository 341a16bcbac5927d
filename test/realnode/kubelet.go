package realnode

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/outrigger/outrigger/dev/cluster/process"
)

// kubeletConfig is the configuration of the kubelet. The kubelet starts on machines where swap is on, disks
// are almost full, or control groups have version 1. The kubelet accepts anonymous calls, because the API
// server has no certificate for the kubelet. Only programs in the network namespace of the node reach the
// kubelet.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: ` + NodeAddress + `
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}, x509: {clientCAFile: ""}}
authorization: {mode: AlwaysAllow}
readOnlyPort: 0
containerRuntimeEndpoint: unix://%[1]s
cgroupDriver: cgroupfs
cgroupRoot: /%[2]s
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
resolvConf: ""
podLogsDir: %[3]q
volumePluginDir: %[4]q
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
`

func (n *Node) startKubelet(ctx context.Context) error {
	client, err := n.client()
	if err != nil {
		return err
	}
	user := "system:node:" + Name
	kubeconfig, err := n.stack.IssueKubeconfig(user, "system:nodes")
	if err != nil {
		return err
	}
	if err := admit(ctx, client, user); err != nil {
		return err
	}
	config := fmt.Sprintf(kubeletConfig, n.socket(), controlGroup(n.state), n.path(LogDir, "pods"), n.path("volume-plugins"))
	if err := n.write(config, "kubelet.yaml"); err != nil {
		return err
	}
	return n.stack.Start(ctx, process.Spec{
		Name: Kubelet, Path: filepath.Join(n.bin, Kubelet),
		Args: []string{
			"--config=" + n.path("kubelet.yaml"),
			"--kubeconfig=" + kubeconfig,
			"--root-dir=" + n.path("kubelet"),
			"--cert-dir=" + n.path("kubelet", "pki"),
			"--hostname-override=" + Name,
			"--node-ip=" + NodeAddress,
		},
	})
}
