// Package ui serves pages about the SidecarSets of a cluster and the rollouts of its fleet. The pages show
// the same data as the kubectl plugin, and are read-only.
package ui
