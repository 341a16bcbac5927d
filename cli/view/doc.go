// Package view contains the models of the output of kubectl sidecarset, and their text. The package reads no
// clock and makes no requests: the time and the data of the cluster and of Temporal are parameters.
package view
