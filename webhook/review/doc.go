// Package review reads AdmissionReviews and answers them, for pods and SidecarSets
// alike.
package review
