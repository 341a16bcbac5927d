// Package figures reads what the processes of a local cluster have used, and prints what
// a bench measured.
package figures
