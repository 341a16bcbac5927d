package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func runCommand(t *testing.T, args ...string) (string, error) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	var out bytes.Buffer
	root := newCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestCommandsWithoutTemporal(t *testing.T) {
	unreachable := "--temporal-address=127.0.0.1:1"
	_, err := runCommand(t, "temporal", "setup", unreachable, "--retention=1h")
	require.EqualError(t, err, "--retention must be at least a day (24h)")
	_, err = runCommand(t, "temporal", "setup", unreachable, "--temporal-tls-ca-path=/absent/ca.crt")
	require.ErrorContains(t, err, "Temporal at 127.0.0.1:1: look for namespace default: ")
	_, err = runCommand(t, "temporal", "prune", unreachable, "--cluster-uid=u")
	require.EqualError(t, err, "Temporal at 127.0.0.1:1: list the open runs in namespace default: connection refused (start the server, or correct --temporal-address or TEMPORAL_ADDRESS)")
	for _, role := range [][]string{{"operator"}, {"worker"}, {"temporal", "setup"}} {
		_, err = runCommand(t, append(role, "--temporal-address=http://127.0.0.1:7233")...)
		require.EqualError(t, err, `address "http://127.0.0.1:7233" of Temporal has the scheme http: use host:port, such as 127.0.0.1:7233 (--temporal-address or TEMPORAL_ADDRESS)`)
	}
	_, err = runCommand(t, "temporal", "prune", unreachable)
	require.ErrorContains(t, err, "is not a UID of a cluster")
	_, err = runCommand(t, "worker", "--temporal-tls-cert-path=c")
	require.ErrorContains(t, err, "a client certificate needs a key, and a key needs a certificate")
	_, err = runCommand(t, "worker", "--temporal-payload-key-id=a")
	require.ErrorContains(t, err, "no directory of keys: set --temporal-payload-key-dir")
	_, err = runCommand(t, "operator", "--temporal-payload-key-dir=/absent")
	require.ErrorContains(t, err, "read the directory of payload keys: open /absent")
	_, err = runCommand(t, "codec-server")
	require.ErrorContains(t, err, "a codec server needs the directory of keys")
	_, err = runCommand(t, "worker", "--build-id=b")
	require.EqualError(t, err, "--build-id and --versioning-behavior need --deployment-name")
	_, err = runCommand(t, "worker", "--deployment-name=d", "--build-id=b", "--versioning-behavior=pin")
	require.EqualError(t, err, `--versioning-behavior "pin": use auto-upgrade or pinned`)
}

// An error about an invalid flag or file does not mention Temporal.
func TestFleetCommandsNameWrongFlagsAndFiles(t *testing.T) {
	unreachable := "--temporal-address=127.0.0.1:1"
	_, err := runCommand(t, "fleet", "freeze", unreachable, "--reason=incident", "--until=tomorrow")
	require.ErrorContains(t, err, "tomorrow")
	require.NotContains(t, err.Error(), "Temporal")
	_, err = runCommand(t, "fleet", "apply", unreachable)
	require.EqualError(t, err, "no FleetPolicy: name its file with --filename")
	_, err = runCommand(t, "fleet", "apply", unreachable, "--filename=/absent.yaml")
	require.EqualError(t, err, "read the FleetPolicy: open /absent.yaml: no such file or directory")
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte("kind: FleetPolicy\nspec: {stagse: []}\n"), 0o600))
	_, err = runCommand(t, "fleet", "apply", unreachable, "--filename="+policy)
	require.ErrorContains(t, err, policy+": ")
	require.ErrorContains(t, err, `unknown field "stagse"`)
}

func TestACheckWithoutACluster(t *testing.T) {
	_, err := runCommand(t, "migrate", "check", "--kubeconfig=/absent")
	require.ErrorContains(t, err, "find a cluster: ")
	t.Setenv("KUBECONFIG", "/absent")
	_, err = runCommand(t, "operator")
	require.EqualError(t, err, "find a cluster: KUBECONFIG=/absent: no such file (correct the variable, or use --kubeconfig)")
	_, err = runCommand(t, "migrate", "check", "--output=xml")
	require.EqualError(t, err, `--output "xml": use json, yaml`)
}
