// Package observer watches pods and SidecarSets at the API server and checks at
// every event what docs/SPEC.md promises. It shares no code with what decides and
// writes, and believes of their annotations only what a pod cannot show otherwise.
package observer
