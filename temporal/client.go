package temporal

import (
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

// Options name the Temporal namespace that holds the rollouts.
type Options struct {
	// Address is host:port of the frontend.
	Address string
	// Namespace exists already.
	Namespace string
}

// NewLazyClient connects with its first call, so that a process starts while
// Temporal is away. The caller closes it.
func NewLazyClient(options Options, logger logr.Logger) (client.Client, error) {
	lazy, err := client.NewLazyClient(client.Options{
		HostPort:  options.Address,
		Namespace: options.Namespace,
		Logger:    log.NewStructuredLogger(slog.New(logr.ToSlogHandler(logger))),
	})
	if err != nil {
		return nil, fmt.Errorf("configure the client of Temporal at %s, namespace %s: %w", options.Address, options.Namespace, err)
	}
	return lazy, nil
}
