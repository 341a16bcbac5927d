// Package upgrade says what an in-place upgrade writes into a pod: images and
// annotations, nothing else (SPEC §7.6).
package upgrade
