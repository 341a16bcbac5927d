package temporal

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/temporal/codec"
)

// Options describes the connection to a Temporal namespace. Flags.Options returns Options.
type Options struct {
	// Address is host:port of the frontend.
	Address string
	// Namespace is an existing Temporal namespace.
	Namespace string
	// Identity is the name of this process in histories and among pollers. If Identity is empty, the SDK uses
	// a default.
	Identity string
	// TLS is nil for plaintext connections.
	TLS *TLS
	// APIKey returns the API key for each call. If APIKey is nil, calls have no API key.
	APIKey func() (string, error)
	// Headers are sent with each call. Headers may contain secrets.
	Headers map[string]string
	// Authority is the :authority of plaintext calls. If Authority is empty, calls use the
	// address.
	Authority string
	// Metrics receives the metrics of the SDK. See NewMetricsHandler. If Metrics is nil, the
	// metrics are dropped.
	Metrics client.MetricsHandler
	// Codec encrypts payloads. If Codec is nil, payloads are not encrypted.
	Codec *codec.Codec
	// HostsWorkflows is set in a process that runs workflows. In this process, a payload that cannot be decoded
	// fails the workflow task. See codec.Codec.WorkflowDataConverter.
	HostsWorkflows bool
	// Tracer creates the spans of the SDK. If Tracer is nil, the SDK creates no spans.
	Tracer trace.Tracer
}

// SpanTracer returns Tracer. If Tracer is nil, SpanTracer returns a tracer that creates no spans.
func (o Options) SpanTracer() trace.Tracer {
	if o.Tracer == nil {
		return noop.Tracer{}
	}
	return o.Tracer
}

// NewLazyClient returns a client that connects at the first call, so that a process can start
// without Temporal. The caller closes the client.
func NewLazyClient(options Options, logger logr.Logger) (client.Client, error) {
	with := options.sdk(logger)
	if options.Tracer != nil {
		traces, err := newTracingInterceptor(options.Tracer)
		if err != nil {
			return nil, err
		}
		// A worker also uses the interceptors of its client.
		with.Interceptors = []interceptor.ClientInterceptor{traces}
	}
	lazy, err := client.NewLazyClient(with)
	if err != nil {
		return nil, fmt.Errorf("configure the client of Temporal at %s, namespace %s: %w", options.Address, options.Namespace, err)
	}
	return lazy, nil
}

// connectTimeout limits an attempt to connect, because the attempt may use the address of a server that has
// stopped.
const connectTimeout = 5 * time.Second

// connectParams returns the parameters of the SDK, with a shorter maximum time between two attempts to
// connect. The SDK would wait up to ten seconds, and rollouts would wait for this time after an outage.
func connectParams() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: connectTimeout,
	}
}

func (o Options) sdk(logger logr.Logger) client.Options {
	options := client.Options{
		HostPort:  o.Address,
		Namespace: o.Namespace,
		Identity:  o.Identity,
		// If MetricsHandler is nil, the SDK drops the metrics.
		MetricsHandler: o.Metrics,
		Logger:         log.NewStructuredLogger(slog.New(logr.ToSlogHandler(logger))),
		// The SDK turns TLS on for an API key unless TLSDisabled is set.
		ConnectionOptions: client.ConnectionOptions{
			Authority: o.Authority, TLSDisabled: o.TLS == nil, DialOptions: []grpc.DialOption{
				grpc.WithConnectParams(connectParams()), grpc.WithChainUnaryInterceptor(noteThrottling),
			},
		},
	}
	if o.TLS != nil {
		// The SDK would read the files only once. Therefore, the dial option replaces the transport
		// credentials of the SDK.
		options.ConnectionOptions.TLS = &tls.Config{ServerName: o.TLS.ServerName}
		options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, grpc.WithTransportCredentials(newTransportCredentials(o.TLS)))
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
		if o.Codec.Log.IsZero() { // several clients may share the codec
			o.Codec.Log = logger
		}
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
