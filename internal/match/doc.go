// Package match decides which pods a SidecarSet applies to (SPEC §3).
package match
