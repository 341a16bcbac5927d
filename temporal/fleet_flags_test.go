package temporal

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSpec12_9_TheFleetHasCredentialsOfItsOwn(t *testing.T) {
	cluster := Options{
		Address: "local:7233", Namespace: "sidecars", TLS: &TLS{ServerName: "local"}, Headers: map[string]string{"secret": "x"},
		APIKey: func() (string, error) { return "local", nil },
	}
	connection := func(args ...string) (Options, error) {
		var f FleetFlags
		set := pflag.NewFlagSet("worker", pflag.ContinueOnError)
		f.AddTo(set)
		require.NoError(t, set.Parse(args))
		assert.Equal(t, len(args) > 0, f.Given(), args)
		return f.Options(cluster)
	}
	o, err := connection()
	require.NoError(t, err)
	assert.Equal(t, "local:7233", o.Address)
	assert.Equal(t, "local", o.TLS.ServerName)
	o, err = connection("--fleet-temporal-address=hub:7233", "--fleet-temporal-namespace=fleet")
	require.NoError(t, err)
	assert.Equal(t, []string{"hub:7233", "fleet"}, []string{o.Address, o.Namespace})
	assert.NotNil(t, o.APIKey, "the credentials of the cluster apply")
	o, err = connection("--fleet-temporal-tls-ca-path=/ca.crt")
	require.NoError(t, err)
	assert.Equal(t, "/ca.crt", o.TLS.ca.path)
	assert.Empty(t, o.TLS.ServerName)
	assert.Nil(t, o.APIKey)
	assert.Nil(t, o.Headers)
	o, err = connection("--fleet-temporal-tls=false")
	require.NoError(t, err)
	assert.Nil(t, o.TLS)
	o, err = connection("--fleet-temporal-api-key-file=/absent")
	require.NoError(t, err)
	require.NotNil(t, o.TLS, "an API key turns TLS on")
	_, err = o.APIKey()
	require.ErrorContains(t, err, "/absent")
	_, err = connection("--fleet-temporal-tls-cert-path=/tls.crt")
	require.ErrorContains(t, err, "--fleet-temporal-")
	_, err = connection("--fleet-temporal-payload-key-id=a")
	require.ErrorContains(t, err, "--fleet-temporal-")
}
