// Package realnode runs containerd and a kubelet beside a local control plane, so that
// containers really run. All of it lives in namespaces of its own, which the kernel
// takes away with the last process, however that ends.
package realnode
