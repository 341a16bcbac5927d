package manifests

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fleetFlags are the flags of a role that belong to a fleet.
func fleetFlags(t *testing.T, manifests map[string]object, role string) (flags []string) {
	t.Helper()
	deployment, ok := manifests["Deployment kruise-system/outrigger-"+role]
	require.True(t, ok)
	spec := deployment["spec"].(object)["template"].(object)["spec"].(object)
	for _, arg := range spec["containers"].([]any)[0].(object)["args"].([]any) {
		if strings.HasPrefix(arg.(string), "--fleet") {
			flags = append(flags, arg.(string))
		}
	}
	return flags
}

func TestSpec12_TheChartMakesAClusterAMemberOfAFleet(t *testing.T) {
	without, with := objects(t, render(t)), objects(t, render(t, "--set", "fleet.enabled=true", "--set", "fleet.temporal.address=hub:7233",
		"--set", "fleet.temporal.namespace=fleet", "--set", "fleet.cluster.name=eu-1", "--set", "fleet.cluster.labels.stage=canary"))
	for _, role := range []string{"operator", "webhook", "worker"} {
		assert.Empty(t, fleetFlags(t, without, role))
		assert.True(t, slices.Contains(fleetFlags(t, with, role), "--fleet"), role)
	}
	assert.Equal(t, []string{"--fleet"}, fleetFlags(t, with, "webhook"))
	assert.Equal(t, []string{
		"--fleet", "--fleet-temporal-address=hub:7233", "--fleet-temporal-namespace=fleet", "--fleet-cluster-name=eu-1", "--fleet-cluster-labels=stage=canary",
	}, fleetFlags(t, with, "worker"))
}
