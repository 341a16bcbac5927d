// Package kube is the connection of all roles to the API server: flags, scheme, manager
// and the index of pods. Its informers reconnect within a second and record since when
// their watches are down, so that no role decides from a stale cache. It also keeps
// SidecarSets readable while their conversion webhook does not answer.
package kube
