// Package view holds what kubectl sidecarset shows, as models made from what was read
// and as text. It is pure: time and everything read are parameters.
package view
