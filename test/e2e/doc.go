// Package e2e tries rollouts on a real node: a kubelet and containerd restart the
// containers, and the sidecar is that of examples/hot-upgrade. It has the build tag e2e,
// and needs root; docs/real-node.md says what else.
package e2e
