// Command kubectl-sidecarset is the kubectl plugin of Outrigger: kubectl sidecarset.
package main
