// Command check prints the requirements for a real node that this machine does not meet.
package main

import (
	"fmt"
	"os"

	"github.com/outrigger/outrigger/test/realnode"
)

func main() {
	if err := realnode.CheckMachine(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e-node:", err)
		os.Exit(1)
	}
}
