package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/operator"
	"github.com/outrigger/outrigger/subcommand"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
	"github.com/outrigger/outrigger/tracing"
	"github.com/outrigger/outrigger/version"
	"github.com/outrigger/outrigger/webhook"
	"github.com/outrigger/outrigger/worker"
)

// flags contains the flags of every role.
type flags struct {
	kube.Options
	logLevel, logFormat string
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "outrigger",
		Short:         "Sidecars as durable rollouts",
		Long:          "Outrigger injects the containers of SidecarSets into new pods and upgrades them in place, each change as a durable Temporal workflow.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (%s)", err, subcommand.FlagHint(cmd, err))
	})
	shared := &flags{}
	shared.add(root)
	root.AddCommand(newOperator(shared), newWorker(shared), newWebhook(shared), newUI(shared), newTemporal(shared), newFleet(), newCodecServer(shared),
		newMigrate(shared), newSimulate(shared), newCheck(shared), newUninstall(shared), version.NewCommand())
	subcommand.Root(root)
	return root
}

func (f *flags) add(root *cobra.Command) {
	set := root.PersistentFlags()
	set.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: $KUBECONFIG or ~/.kube/config, or else the cluster of this pod")
	set.StringVar(&f.SystemNamespace, "namespace", v1alpha1.DefaultSystemNamespace, "system `namespace`, which contains revisions, configuration and Leases")
	set.Float32Var(&f.QPS, "kube-api-qps", 200, "requests per second to the API server for each kind of object, on average")
	set.IntVar(&f.Burst, "kube-api-burst", 400, "requests to the API server for each kind of object in a burst")
	set.StringVar(&f.MetricsAddress, "metrics-bind-address", ":8080", "`address` of /metrics; 0 turns it off")
	set.StringVar(&f.HealthAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 turns them off")
	set.StringVar(&f.ProfileAddress, "pprof-bind-address", "", "`address` of /debug/pprof, which has no authentication; empty turns it off")
	set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	set.StringVar(&f.logFormat, "log-format", "text", "text or json")
}

// options validates the flags and sets up logging.
func (f *flags) options(args []string) (kube.Options, error) {
	if len(args) > 0 {
		return kube.Options{}, fmt.Errorf("unexpected argument %q: only flags are allowed, see --help", args[0])
	}
	if f.QPS <= 0 || f.Burst < 1 {
		return kube.Options{}, fmt.Errorf("--kube-api-qps and --kube-api-burst must be positive")
	}
	if f.SystemNamespace == "" {
		return kube.Options{}, fmt.Errorf("--namespace must not be empty")
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return kube.Options{}, fmt.Errorf("--log-level %q: use debug, info, warn or error", f.logLevel)
	}
	handlerOptions := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	switch f.logFormat {
	case "text":
		handler = slog.NewTextHandler(os.Stderr, handlerOptions)
	case "json":
		handler = slog.NewJSONHandler(os.Stderr, handlerOptions)
	default:
		return kube.Options{}, fmt.Errorf("--log-format %q: use text or json", f.logFormat)
	}
	f.Logger = filterLog(logr.FromSlogHandler(handler))
	ctrllog.SetLogger(f.Logger)
	klog.SetLogger(f.Logger)
	return f.Options, nil
}

func addTemporal(cmd *cobra.Command, f *temporal.Flags, keys *codec.Options, taskQueue *string) {
	f.AddTo(cmd.Flags())
	keys.AddTo(cmd.Flags())
	cmd.Flags().StringVar(taskQueue, "task-queue", "", "Temporal task `queue`; empty: the UID of namespace kube-system, so that several clusters can share a Temporal namespace")
}

func newOperator(shared *flags) *cobra.Command {
	var o operator.Options
	var f temporal.Flags
	var keys codec.Options
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Register revisions, write status, and start rollouts in Temporal",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Options, err = shared.options(args); err != nil {
				return err
			}
			if o.WorkerCheckInterval <= 0 {
				return fmt.Errorf("--worker-check-interval must be positive")
			}
			if o.Temporal, err = f.ProcessOptions("operator", keys); err != nil {
				return err
			}
			setGCPercent(cacheGCPercent)
			return traced(cmd.Context(), &o.Temporal.Tracer, "operator", o.Logger, func() error { return operator.Run(cmd.Context(), o) })
		},
	}
	addTemporal(cmd, &f, &keys, &o.TaskQueue)
	cmd.Flags().StringVar(&o.TemporalUI, "temporal-ui-url", "", "`URL` of the Temporal UI, for links in status and events")
	addFleetMember(cmd, &o.Fleet)
	cmd.Flags().BoolVar(&o.LeaderElect, "leader-elect", true, "run only one of several operators at a time")
	cmd.Flags().DurationVar(&o.WorkerCheckInterval, "worker-check-interval", 30*time.Second, "time between two queries that show whether the workers respond; a query is an action of Temporal Cloud")
	return cmd
}

func newWorker(shared *flags) *cobra.Command {
	var o worker.Options
	var f temporal.Flags
	var connection temporal.FleetFlags
	var keys codec.Options
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run the Temporal workflow and the activities that upgrade pods",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Options, err = shared.options(args); err != nil {
				return err
			}
			if o.MaxConcurrentSelects < 1 || o.MaxConcurrentPatches < 1 {
				return fmt.Errorf("--max-concurrent-selects and --max-concurrent-patches must be positive")
			}
			if o.MaxUnavailablePods < 0 {
				return fmt.Errorf("--max-unavailable-pods must not be negative")
			}
			build, _ := debug.ReadBuildInfo()
			if o.Versioning, err = o.Versioning.Resolve(build); err != nil {
				return err
			}
			if o.MaxUnavailablePods > 0 && o.Versioning.DeploymentName != "" {
				return fmt.Errorf("--max-unavailable-pods and --deployment-name exclude each other: one worker executes all patch activities, of every version")
			}
			if o.Temporal, err = f.ProcessOptions("worker", keys); err != nil {
				return err
			}
			if err = needFleet(o.Fleet.Enabled, &connection); err != nil {
				return err
			}
			if o.Fleet.Temporal, err = connection.Options(o.Temporal); err != nil {
				return err
			}
			setGCPercent(cacheGCPercent)
			o.PodUID = os.Getenv("POD_UID")
			return traced(cmd.Context(), &o.Temporal.Tracer, "worker", o.Logger, func() error { return worker.Run(cmd.Context(), o) })
		},
	}
	addTemporal(cmd, &f, &keys, &o.TaskQueue)
	addVersioning(cmd, &o.Versioning)
	addFleetMember(cmd, &o.Fleet.Enabled)
	addFleetWorker(cmd, &o.Fleet, &connection)
	addConcurrency(cmd, &o.MaxConcurrentSelects, "max-concurrent-selects", "max-concurrent-looks", "concurrent activities that select pods to upgrade")
	addConcurrency(cmd, &o.MaxConcurrentPatches, "max-concurrent-patches", "max-concurrent-writes", "concurrent activities that patch pods; each patches several pods")
	cmd.Flags().IntVar(&o.MaxUnavailablePods, "max-unavailable-pods", 0, "cluster-wide limit: pods of all SidecarSets that upgrades may make unavailable at the same time; must be equal for all workers, of which one, elected by a Lease, then upgrades all pods; 0: only the maxUnavailable of each SidecarSet applies")
	return cmd
}

// addConcurrency adds a flag with the given name, and a deprecated flag with the former name.
func addConcurrency(cmd *cobra.Command, into *int, name, former, usage string) {
	for _, flag := range []string{name, former} {
		cmd.Flags().IntVar(into, flag, 200, usage)
	}
	_ = cmd.Flags().MarkDeprecated(former, "use --"+name) // MarkDeprecated fails only for a flag that does not exist
}

// traced starts a tracer, stores the tracer at into, and runs a role.
func traced(ctx context.Context, into *trace.Tracer, role string, log logr.Logger, run func() error) error {
	tracer, stop, err := tracing.Start(ctx, role, os.Getenv, log.WithName("tracing"))
	if err != nil {
		return err
	}
	defer stop()
	*into = tracer
	return run()
}

func addVersioning(cmd *cobra.Command, v *worker.Versioning) {
	cmd.Flags().StringVar(&v.DeploymentName, "deployment-name", "", "`name` of the Temporal worker deployment of this worker, which receives tasks once its version is current; empty: unversioned")
	cmd.Flags().StringVar(&v.BuildID, "build-id", "", "`id` of the version; empty: the Git revision of the build")
	cmd.Flags().StringVar(&v.Behavior, "versioning-behavior", worker.AutoUpgrade, "what open runs do when another version becomes current: auto-upgrade: continue there; pinned: stay on their version")
}

func newWebhook(shared *flags) *cobra.Command {
	var o webhook.Options
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Inject sidecars into new pods; default and validate SidecarSets",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Options, err = shared.options(args); err != nil {
				return err
			}
			if o.ShutdownDelay < 0 {
				return fmt.Errorf("--shutdown-delay-duration must not be negative")
			}
			setGCPercent(webhookGCPercent)
			return traced(cmd.Context(), &o.Tracer, "webhook", o.Logger, func() error { return webhook.Run(cmd.Context(), o) })
		},
	}
	addFleetMember(cmd, &o.Fleet)
	cmd.Flags().IntVar(&o.Port, "port", 9443, "`port` of the admission endpoints")
	cmd.Flags().StringVar(&o.URL, "url", "", "`URL` at which the API server reaches this process, such as https://localhost:9443; empty: by the Service")
	cmd.Flags().StringVar(&o.ServiceName, "service-name", "outrigger-webhook", "`name` of the Service in front of this process")
	cmd.Flags().BoolVar(&o.ExternalCertificate, "external-certificate", false, "only read the Secret outrigger-webhook-cert, which another controller, such as cert-manager, writes")
	cmd.Flags().BoolVar(&o.MatchConditions, "match-conditions", false, "let API servers call this webhook only for pods that a SidecarSet can select; must be equal for all replicas; creating a SidecarSet then takes a second longer")
	cmd.Flags().StringVar(&o.ClientCAFile, "client-ca-file", "", "`file` with the CA of the API servers' client certificates; other clients receive 401; empty: no check")
	cmd.Flags().DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", 5*time.Second, "time between the loss of readiness at a shutdown and the end of new requests; at least 20 s below the grace period of the pod")
	cmd.Flags().Var(&o.FeatureGates, "feature-gates", "gate=true,...: SidecarSetPatchPodMetadataDefaultsAllowed allows SidecarSets to patch all annotations of pods, without the whitelist")
	return cmd
}
