// Package cluster runs a whole Kubernetes control plane with simulated nodes and
// a Temporal server on this machine, from the programs in bin/. Authentication
// and RBAC are real; nothing of it outlives the process that started it.
package cluster
