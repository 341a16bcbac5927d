// Package view has the models of the output of kubectl sidecarset, and their text. It is pure:
// time and the data of the cluster and of Temporal are parameters.
package view
