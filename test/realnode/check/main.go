// Command check prints the requirements of a real node that this machine lacks.
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
