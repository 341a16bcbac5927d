package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	os.Exit(command(programs()))
}

// command runs the command over a list of programs and returns its exit code.
func command(all []program) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, all, os.Args[1:], os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		return 1
	}
	return 0
}

// mode is the variable TOOLS.
type mode string

const (
	// auto takes what is there, downloads what it can and compiles the rest.
	auto mode = "auto"
	// download does not compile.
	download mode = "download"
	// build compiles everything.
	build mode = "build"
)

// run installs the named programs, or all that are not optional, into bin/ of the
// working directory, which is the repository.
func run(ctx context.Context, all []program, names []string, lookup func(string) string, out io.Writer) error {
	how := mode(lookup("TOOLS"))
	switch how {
	case "":
		how = auto
	case auto, download, build:
	default:
		return fmt.Errorf("TOOLS=%s: use %s, %s or %s", how, auto, download, build)
	}
	wanted, err := choose(all, names)
	if err != nil {
		return err
	}
	b, err := openBin("bin", "tools/go.mod")
	if err != nil {
		return err
	}
	fits := func(p program) bool { return b.fits(p, how == build) }
	if wanted = slices.DeleteFunc(wanted, fits); len(wanted) == 0 {
		return nil
	}
	unlock, err := b.lock(ctx, out)
	if err != nil {
		return err
	}
	defer unlock()
	// Another run may have installed them meanwhile.
	if wanted = slices.DeleteFunc(wanted, fits); len(wanted) == 0 {
		return nil
	}
	pins, err := readPins("tools/checksums.txt")
	if err != nil {
		return err
	}
	verbose := io.Discard
	if lookup("V") != "" {
		verbose = out
	}
	i := installer{
		bin: b, mode: how, out: out, verbose: verbose, os: runtime.GOOS, arch: runtime.GOARCH,
		folders: folders(lookup, runtime.GOOS, runtime.GOARCH),
		fetcher: newFetcher(sites(lookup), pins, b.work(), 5*time.Second, verbose),
	}
	return i.install(ctx, wanted)
}

func choose(all []program, names []string) ([]program, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(p program) bool { return p.optional }), nil
	}
	var known []string
	for _, p := range all {
		known = append(known, p.name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s: unknown program; there are %s", name, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(all, func(p program) bool { return !slices.Contains(names, p.name) }), nil
}
