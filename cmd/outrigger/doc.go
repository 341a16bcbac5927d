// Command outrigger runs the roles operator, worker and webhook. It also contains the pages about
// rollouts, and the commands for installation, switchover, simulation, fleets and uninstallation.
package main
