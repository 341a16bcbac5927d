// Command outrigger runs the roles operator, worker and webhook, serves the pages about rollouts, and
// contains the commands for installation, switchover, simulation, fleets and uninstallation.
package main
