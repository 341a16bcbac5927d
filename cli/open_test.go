package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// A client with the permission to write status can write any address.
func TestOpenAcceptsOnlyAddressesOfWebPages(t *testing.T) {
	for address, accepted := range map[string]bool{
		"https://temporal.example.com/namespaces/x": true, "http://localhost:8233": true,
		"file:///etc/passwd": false, "smb://host/share": false, "calculator:1": false, "https:///path": false, "notaurl": false, "http://[::1": false,
	} {
		s := newTestCluster(t, sidecarSet(t, "logs", func(set *v1alpha1.SidecarSet) {
			set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 1, URL: address}
		}))
		got := s.run("open", "logs", "--print")
		if accepted {
			assert.NoError(t, got.err, address)
			assert.Equal(t, address+"\n", got.out)
		} else {
			assert.ErrorContains(t, got.err, "status of SidecarSet logs has the URL", address)
			assert.Empty(t, got.out)
		}
	}
}
