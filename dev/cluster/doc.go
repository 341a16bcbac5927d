// Package cluster runs a Kubernetes control plane with simulated nodes, and a Temporal server, on
// this machine. The programs are in bin/. Authentication and RBAC are real. All processes end
// with the process that started them.
package cluster
