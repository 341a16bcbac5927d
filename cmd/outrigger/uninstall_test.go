package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnUninstallationNamesTheClusterAndNeedsAYes(t *testing.T) {
	for answer, agreed := range map[string]bool{"yes\n": true, " yes": true, "no\n": false, "y\n": false, "": false} {
		var out strings.Builder
		err := confirmUninstall(strings.NewReader(answer), &out, "https://prod:6443", "kruise-system")
		if agreed {
			require.NoError(t, err, answer)
		} else {
			require.EqualError(t, err, "nothing was removed", answer)
		}
		assert.Equal(t, "Remove Outrigger from the cluster at https://prod:6443, namespace kruise-system? (yes or no) ", out.String())
	}
}
