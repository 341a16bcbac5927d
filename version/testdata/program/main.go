// Command program only prints its version.
package main

import (
	"os"

	"github.com/outrigger/outrigger/version"
)

func main() {
	if version.NewCommand().Execute() != nil {
		os.Exit(1)
	}
}
