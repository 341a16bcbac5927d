// Package validation is the admission of SidecarSets: defaults, and what is
// refused with which words (SPEC §1, §5).
package validation
