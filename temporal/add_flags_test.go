package temporal

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConnectionFlagsEqualTheFlagsOfTheTemporalCLI(t *testing.T) {
	var f Flags
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddTo(set)
	require.NoError(t, set.Parse(nil))
	assert.Equal(t, Flags{}, f, "what is not given is left to variables and profile")
	require.NoError(t, set.Parse([]string{
		"--temporal-address=a:1", "--temporal-namespace=n", "--temporal-api-key=k", "--temporal-tls", "--temporal-tls-cert-path=c", "--temporal-tls-key-path=y",
		"--temporal-tls-ca-path=ca", "--temporal-tls-server-name=s", "--temporal-tls-disable-host-verification=false",
		"--temporal-grpc-meta=a=1,2", "--temporal-grpc-meta=b=3", "--temporal-profile=p", "--temporal-config-file=f", "--temporal-api-key-file=kf",
	}))
	assert.Equal(t, Flags{
		Address: "a:1", Namespace: "n", APIKey: "k", APIKeyFile: "kf", TLS: new(true), CertPath: "c", KeyPath: "y", CAPath: "ca", ServerName: "s",
		DisableHostVerification: new(false), Headers: []string{"a=1,2", "b=3"}, Profile: "p", ConfigFile: "f",
	}, f)
	require.NoError(t, set.Parse([]string{"--temporal-tls=false"}))
	assert.False(t, *f.TLS)
	require.ErrorContains(t, set.Parse([]string{"--temporal-tls=perhaps"}), "use true or false")
}
