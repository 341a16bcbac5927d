// Package ui serves pages about the SidecarSets of a cluster and the rollouts of its fleet. The pages show
// the models of the kubectl plugin, and change nothing.
package ui
