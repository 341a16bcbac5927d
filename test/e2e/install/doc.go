// Package install tests docs/install.md on a real node. The roles run in the pods of their Deployments with
// their ServiceAccounts, and the API server calls the webhook through the Service of the webhook. The tests
// have the build tag e2e and the same requirements as package e2e.
package install
