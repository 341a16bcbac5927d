// Package observer watches pods and SidecarSets at the API server and checks the rules of
// docs/SPEC.md at every event. It shares no code with the roles, and reads an annotation only
// where the pod itself does not show the same.
package observer
