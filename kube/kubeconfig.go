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

// CheckKubeconfig returns an error if $KUBECONFIG names only missing files. client-go would ignore these
// files, and could connect to another cluster. CheckKubeconfig ignores empty names, as client-go does.
func CheckKubeconfig() error {
	const variable = clientcmd.RecommendedConfigPathEnvVar
	files := os.Getenv(variable)
	named := slices.DeleteFunc(filepath.SplitList(files), func(file string) bool { return file == "" })
	exists := func(file string) bool {
		_, err := os.Stat(file)
		return !errors.Is(err, fs.ErrNotExist)
	}
	if len(named) == 0 || slices.ContainsFunc(named, exists) {
		return nil
	}
	return fmt.Errorf("find a cluster: %s=%s: no such file (correct the variable, or use --kubeconfig)", variable, files)
}
