package temporal

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnInvalidAddressIsRejectedWithItsCorrection(t *testing.T) {
	const where = " (--temporal-address or TEMPORAL_ADDRESS)"
	for address, want := range map[string]string{
		"http://127.0.0.1:7233":        `address "http://127.0.0.1:7233" of Temporal has the scheme http: use host:port, such as 127.0.0.1:7233` + where,
		"https://temporal.example.com": `address "https://temporal.example.com" of Temporal has the scheme https: use host:port, such as temporal.example.com:443 with --temporal-tls` + where,
		"grpc://temporal:7233/default": `address "grpc://temporal:7233/default" of Temporal has the scheme grpc: use host:port, such as temporal:7233` + where,
		"temporal.example.com":         `address "temporal.example.com" of Temporal has no port: use host:port, such as temporal.example.com:7233` + where,
		"temporal:":                    `address "temporal:" of Temporal has no port: use host:port, such as temporal:7233` + where,
		"::1":                          `address "::1" of Temporal has no port: use host:port, such as [::1]:7233` + where,
		"[::1]":                        `address "[::1]" of Temporal has no port: use host:port, such as [::1]:7233` + where,
		"temporal:0":                   `address "temporal:0" of Temporal has an invalid port: use host:port, such as temporal:7233` + where,
		"temporal:72330":               `address "temporal:72330" of Temporal has an invalid port: use host:port, such as temporal:7233` + where,
		"temporal:7233/":               `address "temporal:7233/" of Temporal has an invalid port: use host:port, such as temporal:7233` + where,
	} {
		_, err := (&Flags{}).Options(variables{"TEMPORAL_ADDRESS": address, "TEMPORAL_CONFIG_FILE": ""})
		require.EqualError(t, err, want)
		_, err = (&Flags{Address: address}).Options(variables{"TEMPORAL_CONFIG_FILE": ""})
		require.EqualError(t, err, want)
	}
	for _, address := range []string{"127.0.0.1:7233", "[::1]:7233", "temporal.kruise-system.svc:7233", ":7233", "dns:///temporal:7233", "unix:/run/temporal.sock"} {
		assert.NoError(t, checkAddress(address, false), address)
	}
}

// A TLS proxy in front of Temporal usually listens on port 443.
func TestTheCorrectionOfAnAddressWithTLSHasPort443(t *testing.T) {
	for address, want := range map[string]string{
		"temporal.example.com":      `address "temporal.example.com" of Temporal has no port: use host:port, such as temporal.example.com:443`,
		"https://temporal:8233":     `address "https://temporal:8233" of Temporal has the scheme https: use host:port, such as temporal:8233 with --temporal-tls`,
		"grpc://temporal/namespace": `address "grpc://temporal/namespace" of Temporal has the scheme grpc: use host:port, such as temporal:443`,
	} {
		for _, flags := range []Flags{{TLS: new(true)}, {APIKey: "key"}, {ServerName: "temporal"}} {
			flags.Address = address
			_, err := flags.Options(variables{"TEMPORAL_CONFIG_FILE": ""})
			require.EqualError(t, err, want+" (--temporal-address or TEMPORAL_ADDRESS)")
		}
	}
}
