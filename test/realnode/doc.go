// Package realnode runs containerd and a kubelet with a local control plane, so that containers really run.
// All processes run in new Linux namespaces. The kernel removes these namespaces when the last process ends,
// even after SIGKILL.
package realnode
