// Command outrigger runs the roles operator, worker and webhook, and the commands for
// installation, switchover and uninstallation.
package main
