// Command sidecar is a server that supports hot upgrades. The new version takes over the
// listening socket from the old version, so that no connection is refused during the upgrade.
//
// Both twins of the sidecar mount the same emptyDir volume. The serving twin listens on a unix
// socket in this volume, and passes its listening socket to its successor.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// These are the names of environment variables. Injection sets SIDECARSET_VERSION.
const (
	versionVariable = "SIDECARSET_VERSION"
	addressVariable = "ADDRESS"       // :8080 by default
	folderVariable  = "SHARED_FOLDER" // /shared by default
	releaseVariable = "RELEASE"       // answers contain the release
	warmUpVariable  = "WARM_UP"       // time before the twin can take over, for example 10s
)

func main() {
	log.SetFlags(log.Lmicroseconds)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatalln("sidecar:", err)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: sidecar serve|migrate")
	}
	shared := handover{
		folder:  cmp.Or(os.Getenv(folderVariable), "/shared"),
		version: os.Getenv(versionVariable),
	}
	switch args[0] {
	case "serve":
		warmUp, err := time.ParseDuration(cmp.Or(os.Getenv(warmUpVariable), "0s"))
		if err != nil {
			return fmt.Errorf("%s: %w", warmUpVariable, err)
		}
		return serve(ctx, options{
			handover: shared, address: cmp.Or(os.Getenv(addressVariable), ":8080"),
			release: os.Getenv(releaseVariable), warmUp: warmUp,
		})
	case "migrate":
		return shared.awaitOwn(ctx)
	}
	return fmt.Errorf("%s: neither serve nor migrate", args[0])
}

// handover is the configuration of the handover between the twins.
type handover struct {
	// folder is a directory that both twins mount.
	folder string
	// version is the value of SIDECARSET_VERSION in this twin.
	version string
}

// socket returns the path at which the serving twin listens for its successor.
func (h handover) socket() string { return filepath.Join(h.folder, "handover.sock") }
