package operator

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// TestMain runs the operator instead of the tests if the test binary is named outrigger. The operator under
// test is therefore a separate process with its own permissions.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "outrigger" {
		if err := playOperator(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func playOperator(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var o Options
	flags := flag.NewFlagSet("operator", flag.ContinueOnError)
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "")
	flags.StringVar(&o.SystemNamespace, "namespace", "", "")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", "", "")
	flags.StringVar(&o.HealthAddress, "health-probe-bind-address", "", "")
	flags.StringVar(&o.Temporal.Address, "temporal-address", "", "")
	flags.StringVar(&o.Temporal.Namespace, "temporal-namespace", "", "")
	flags.StringVar(&o.TemporalUI, "temporal-ui-url", "", "")
	flags.BoolVar(&o.LeaderElect, "leader-elect", true, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.QPS, o.Burst = 200, 400
	o.Logger = logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	ctrllog.SetLogger(o.Logger)
	return Run(ctx, o)
}
