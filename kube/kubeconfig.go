package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
)

// CheckKubeconfig returns an error if $KUBECONFIG names only missing files. client-go would ignore
// the variable and connect to another cluster, or to none.
func CheckKubeconfig() error {
	const variable = clientcmd.RecommendedConfigPathEnvVar
	files := os.Getenv(variable)
	exists := func(file string) bool {
		_, err := os.Stat(file)
		return !errors.Is(err, fs.ErrNotExist)
	}
	if files == "" || slices.ContainsFunc(filepath.SplitList(files), exists) {
		return nil
	}
	return fmt.Errorf("find a cluster: %s=%s: no such file (correct the variable, or use --kubeconfig)", variable, files)
}
