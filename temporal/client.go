package temporal

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/temporal/codec"
)

// Options say how to reach the Temporal namespace that holds the rollouts, see
// Flags.Options.
type Options struct {
	// Address is host:port of the frontend.
	Address string
	// Namespace exists already.
	Namespace string
	// Identity names this process in histories and among pollers; empty: the SDK's choice.
	Identity string
	// TLS is nil for plaintext.
	TLS *TLS
	// APIKey is asked for the key at each call; nil: none.
	APIKey func() (string, error)
	// Headers go with each call. They may hold secrets.
	Headers map[string]string
	// Authority is the :authority of plaintext calls; empty: from the address.
	Authority string
	// Metrics takes the SDK's metrics; nil: nobody, see NewMetricsHandler.
	Metrics client.MetricsHandler
	// Codec encrypts payloads; nil: they are plain.
	Codec *codec.Codec
	// HostsWorkflows has payloads that cannot be decoded fail workflow tasks, see
	// codec.Codec.WorkflowDataConverter.
	HostsWorkflows bool
	// Tracer makes spans of what the SDK does; nil: none.
	Tracer trace.Tracer
}

// SpanTracer is the Tracer, or one that makes no spans.
func (o Options) SpanTracer() trace.Tracer {
	if o.Tracer == nil {
		return noop.Tracer{}
	}
	return o.Tracer
}

// NewLazyClient connects with its first call, so that a process starts while
// Temporal is away. The caller closes it.
func NewLazyClient(options Options, logger logr.Logger) (client.Client, error) {
	with := options.sdk(logger)
	if options.Tracer != nil {
		traces, err := newTracingInterceptor(options.Tracer)
		if err != nil {
			return nil, err
		}
		// Workers take it from their client.
		with.Interceptors = []interceptor.ClientInterceptor{traces}
	}
	lazy, err := client.NewLazyClient(with)
	if err != nil {
		return nil, fmt.Errorf("configure the client of Temporal at %s, namespace %s: %w", options.Address, options.Namespace, err)
	}
	return lazy, nil
}

func (o Options) sdk(logger logr.Logger) client.Options {
	options := client.Options{
		HostPort:  o.Address,
		Namespace: o.Namespace,
		Identity:  o.Identity,
		// A nil interface is the SDK's default.
		MetricsHandler: o.Metrics,
		Logger:         log.NewStructuredLogger(slog.New(logr.ToSlogHandler(logger))),
		// With an API key the SDK turns TLS on unless it is told not to.
		ConnectionOptions: client.ConnectionOptions{Authority: o.Authority, TLSDisabled: o.TLS == nil},
	}
	if o.TLS != nil {
		// The SDK would read the files once; its own credentials are overridden.
		options.ConnectionOptions.TLS = &tls.Config{ServerName: o.TLS.ServerName}
		options.ConnectionOptions.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(newTransportCredentials(o.TLS))}
	}
	if o.APIKey != nil {
		options.Credentials = client.NewAPIKeyDynamicCredentials(func(context.Context) (string, error) {
			key, err := o.APIKey()
			if err != nil {
				return "", status.Error(codes.Unauthenticated, err.Error())
			}
			return key, nil
		})
	}
	if len(o.Headers) > 0 {
		options.HeadersProvider = headers(o.Headers)
	}
	if o.Codec != nil {
		o.Codec.Log = logger
		options.DataConverter = o.Codec.DataConverter()
		if o.HostsWorkflows {
			options.DataConverter = o.Codec.WorkflowDataConverter()
		}
		options.FailureConverter = temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
			DataConverter: options.DataConverter, EncodeCommonAttributes: o.Codec.Encrypts(),
		})
	}
	return options
}

type headers map[string]string

// GetHeaders implements client.HeadersProvider.
func (h headers) GetHeaders(context.Context) (map[string]string, error) { return h, nil }
