// Command outrigger runs the roles operator, worker and webhook. It also contains the commands
// for installation, switchover and uninstallation.
package main
