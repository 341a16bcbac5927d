// Package record is the one codec of what SidecarSets write into pods'
// annotations (SPEC §2).
package record
