// Package e2e tests rollouts on a real node, with a kubelet and containerd. The sidecar is
// examples/hot-upgrade. The tests have the build tag e2e and require root (docs/real-node.md).
package e2e
