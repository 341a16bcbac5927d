// Package pods is the admission of pods: it finds the SidecarSets that match a new
// pod, resolves which version of each the pod gets, and injects (SPEC §3, §4).
package pods
