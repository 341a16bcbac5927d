package kube

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// client-go ignores empty entries of the list.
func TestEmptyEntriesOfKUBECONFIGAreIgnored(t *testing.T) {
	for files, want := range map[string]string{
		"": "", ":": "", "::": "", "/absent:" + t.TempDir(): "",
		":/absent:": "find a cluster: KUBECONFIG=:/absent:: no such file (correct the variable, or use --kubeconfig)",
	} {
		t.Setenv("KUBECONFIG", files)
		if err := CheckKubeconfig(); want == "" {
			assert.NoError(t, err, files)
		} else {
			assert.EqualError(t, err, want)
		}
	}
}
