// Package inject decides what SidecarSets add to a new pod (SPEC §4).
package inject
