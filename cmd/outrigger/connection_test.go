package main

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/temporal"
)

func TestConnectionFlagsAreThoseOfTheTemporalCLI(t *testing.T) {
	var f temporal.Flags
	cmd := &cobra.Command{}
	addConnection(cmd, &f)
	require.NoError(t, cmd.ParseFlags(nil))
	assert.Equal(t, temporal.Flags{}, f, "what is not given is left to variables and profile")
	require.NoError(t, cmd.ParseFlags([]string{
		"--temporal-address=a:1", "--temporal-namespace=n", "--temporal-api-key=k", "--temporal-tls", "--temporal-tls-cert-path=c", "--temporal-tls-key-path=y",
		"--temporal-tls-ca-path=ca", "--temporal-tls-server-name=s", "--temporal-tls-disable-host-verification=false",
		"--temporal-grpc-meta=a=1,2", "--temporal-grpc-meta=b=3", "--temporal-profile=p", "--temporal-config-file=f", "--temporal-api-key-file=kf",
	}))
	assert.Equal(t, temporal.Flags{
		Address: "a:1", Namespace: "n", APIKey: "k", APIKeyFile: "kf", TLS: new(true), CertPath: "c", KeyPath: "y", CAPath: "ca", ServerName: "s",
		DisableHostVerification: new(false), Headers: []string{"a=1,2", "b=3"}, Profile: "p", ConfigFile: "f",
	}, f)
	require.NoError(t, cmd.ParseFlags([]string{"--temporal-tls=false"}))
	assert.False(t, *f.TLS)
	require.ErrorContains(t, cmd.ParseFlags([]string{"--temporal-tls=perhaps"}), "use true or false")
}

func runCommand(t *testing.T, args ...string) (string, error) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	var out bytes.Buffer
	root := newCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestCommandsAgainstNobody(t *testing.T) {
	nobody := "--temporal-address=127.0.0.1:1"
	_, err := runCommand(t, "temporal", "setup", nobody, "--retention=1h")
	require.EqualError(t, err, "--retention must be a day (24h) at least")
	_, err = runCommand(t, "temporal", "setup", nobody, "--temporal-tls-ca-path=/absent/ca.crt")
	require.ErrorContains(t, err, "Temporal at 127.0.0.1:1: look for namespace default: ")
	_, err = runCommand(t, "temporal", "prune", nobody, "--cluster-uid=u")
	require.ErrorContains(t, err, "Temporal at 127.0.0.1:1: list the open runs in namespace default: ")
	_, err = runCommand(t, "temporal", "prune", nobody)
	require.ErrorContains(t, err, "is no UID of a cluster")
	_, err = runCommand(t, "worker", "--temporal-tls-cert-path=c")
	require.ErrorContains(t, err, "a client certificate and its key are given both or not at all")
	_, err = runCommand(t, "worker", "--temporal-payload-key-id=a")
	require.ErrorContains(t, err, "no directory of keys: give --temporal-payload-key-dir")
	_, err = runCommand(t, "operator", "--temporal-payload-key-dir=/absent")
	require.ErrorContains(t, err, "read the directory of payload keys: open /absent")
	_, err = runCommand(t, "codec-server")
	require.ErrorContains(t, err, "a codec server needs the directory of keys")
	_, err = runCommand(t, "worker", "--build-id=b")
	require.EqualError(t, err, "--build-id and --versioning-behavior need --deployment-name")
	_, err = runCommand(t, "worker", "--deployment-name=d", "--build-id=b", "--versioning-behavior=pin")
	require.EqualError(t, err, `--versioning-behavior "pin": use auto-upgrade or pinned`)
}
