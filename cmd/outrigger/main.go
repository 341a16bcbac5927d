package main

import (
	"errors"
	"fmt"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/outrigger/outrigger/cli"
)

func main() {
	if err := newCommand().ExecuteContext(signals.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "outrigger:", cli.Printable(err.Error()))
		os.Exit(exitCode(err))
	}
}

// exitCode returns the exit code of a command that failed with err.
func exitCode(err error) int {
	if ended, ok := errors.AsType[rolloutError](err); ok {
		return ended.code
	}
	return 1
}
