// Package cluster runs a Kubernetes control plane with simulated nodes, and a Temporal server, on this
// machine. The programs are in bin/. Authentication and RBAC are real. When the process that uses this
// package ends, the kernel kills all processes of the cluster.
package cluster
