// Package process runs child processes that never outlive their parent: each
// has its own process group and dies with us, even on kill -9.
package process
