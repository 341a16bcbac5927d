// Command container is the program of test containers that only wait.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// The command "container wait" runs until SIGTERM or SIGINT. The command "container end 2s" exits after
// two seconds.
func main() {
	if len(os.Args) == 3 && os.Args[1] == "end" {
		after, err := time.ParseDuration(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, "container:", err)
			os.Exit(2)
		}
		time.Sleep(after)
		return
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	<-asked
}
