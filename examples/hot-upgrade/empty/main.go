// Command empty is the program of the empty image, which the standby twin of a hot sidecar runs. empty
// accepts the command, the hooks and the probes of the sidecar, and does nothing.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "migrate" {
		return
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, os.Interrupt)
	<-asked
}
