// Package install tries docs/install.md on a real node: the roles run in pods as their
// Deployments say, sign in as their ServiceAccounts, and the API server calls the webhook
// where its Service points. It has the build tag e2e, and needs what package e2e needs.
package install
