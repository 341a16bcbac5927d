// Package tracing exports the OpenTelemetry spans of a process. The standard OTEL_* variables
// configure the export.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

const (
	scope = "github.com/outrigger/outrigger"
	// stopTimeout limits the export of the last spans before the process ends.
	stopTimeout = 3 * time.Second
)

// Start returns the tracer of a role, such as operator, and a function that exports the remaining spans
// before the process ends. The tracer is nil unless the environment sets OTEL_EXPORTER_OTLP_ENDPOINT,
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_TRACES_EXPORTER=otlp. If the endpoint does not respond, spans
// are lost, and the cause is logged. Start returns an error for invalid OTEL_* variables.
func Start(ctx context.Context, role string, getenv func(string) string, log logr.Logger) (tracer trace.Tracer, stop func(), err error) {
	if on, err := enabled(getenv); err != nil || !on {
		return nil, func() {}, err
	}
	client, err := newClient(getenv)
	if err != nil {
		return nil, nil, err
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, nil, fmt.Errorf("set up the export of traces: %w", err)
	}
	// The last option takes precedence, so OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
	// override the other options.
	of, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("outrigger-"+role)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Info("cannot export traces", "cause", err.Error()) }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(of), sdktrace.WithIDGenerator(ids{}))
	return provider.Tracer(scope), func() {
		flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := provider.Shutdown(flushing); err != nil {
			log.Info("cannot export the last traces", "cause", err.Error())
		}
	}, nil
}

func enabled(getenv func(string) string) (bool, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "otlp":
		return true, nil
	case "":
		return cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != "", nil
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER %q: use otlp or none", exporter)
	}
}

// newClient returns the client of the exporter. The client reads endpoint, headers and TLS from the
// environment.
func newClient(getenv func(string) string) (otlptrace.Client, error) {
	switch protocol := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); protocol {
	case "", "http/protobuf":
		return otlptracehttp.NewClient(), nil
	case "grpc":
		return otlptracegrpc.NewClient(), nil
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL %q: use http/protobuf or grpc", protocol)
	}
}
