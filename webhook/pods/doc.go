// Package pods implements the admission of pods. The Handler finds the SidecarSets that match a new pod,
// resolves the version of each SidecarSet for the pod, and injects the sidecars (SPEC §3, §4).
package pods
