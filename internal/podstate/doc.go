// Package podstate compares a pod with a version of a SidecarSet: does it hold
// the sidecars, is it updated, has the kubelet taken the change, is it ready
// (SPEC §3, §7).
package podstate
