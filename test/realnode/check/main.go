// Command check prints what this machine lacks to run a real node.
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
