package tracing

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNothingIsExportedWithoutAnEndpointInTheEnvironment(t *testing.T) {
	const endpoint = "http://127.0.0.1:4318"
	for name, c := range map[string]struct {
		env map[string]string
		on  bool
	}{
		"nothing":            {nil, false},
		"protocol alone":     {map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false},
		"endpoint":           {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}, true},
		"endpoint of traces": {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint}, true},
		"default endpoint":   {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true},
		"no traces":          {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_EXPORTER": "none"}, false},
		"disabled":           {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_SDK_DISABLED": "true"}, false},
		"grpc":               {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			tracer, stop, err := Start(t.Context(), "worker", func(key string) string { return c.env[key] }, logr.Discard())
			require.NoError(t, err)
			defer stop()
			assert.Equal(t, c.on, tracer != nil)
		})
	}
}

func TestExportersThatAreNotThereAreNamed(t *testing.T) {
	for key, want := range map[string]string{
		"OTEL_TRACES_EXPORTER":        `OTEL_TRACES_EXPORTER "zipkin": use otlp or none`,
		"OTEL_EXPORTER_OTLP_PROTOCOL": `OTEL_EXPORTER_OTLP_PROTOCOL "zipkin": use http/protobuf or grpc`,
	} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", key: "zipkin"}
		_, _, err := Start(t.Context(), "worker", func(key string) string { return env[key] }, logr.Discard())
		require.EqualError(t, err, want)
	}
}
