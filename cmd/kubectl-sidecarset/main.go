package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The command prints all errors. Therefore, the logs of libraries are discarded.
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	command := cli.NewCommand(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: cli.PrintableWriter(os.Stderr)})
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", cli.Printable(err.Error()))
		os.Exit(cli.ExitCode(err))
	}
}
