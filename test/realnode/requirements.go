package realnode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// CheckMachine returns an error that lists the missing requirements of this machine, and the remedies.
func CheckMachine() error {
	var missing []error
	if os.Geteuid() != 0 {
		missing = append(missing, errors.New("root: run it as root, namespaces and mounts need that"))
	}
	for _, program := range []struct{ name, debian string }{
		{"containerd", "containerd"}, {"containerd-shim-runc-v2", "containerd"}, {"ctr", "containerd"}, {"runc", "runc"},
	} {
		if _, err := exec.LookPath(program.name); err != nil {
			missing = append(missing, fmt.Errorf("%s: apt-get install %s", program.name, program.debian))
		}
	}
	if _, err := networkPlugins(); err != nil {
		missing = append(missing, err)
	}
	if roots, err := hierarchies(); err != nil || len(roots) == 0 {
		missing = append(missing, fmt.Errorf("control groups: mount them below %s", controlGroups))
	}
	if len(missing) > 0 {
		return fmt.Errorf("a real node needs what is missing here:\n%w", errors.Join(missing...))
	}
	return nil
}

// networkPlugins returns the directory of the CNI plugins: the default directory, or the directory of the
// Debian package.
func networkPlugins() (string, error) {
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni"} {
		if hasPlugins(dir) {
			return dir, nil
		}
	}
	return "", errors.New("the CNI plugins bridge, host-local and loopback, in /opt/cni/bin or /usr/lib/cni: apt-get install containernetworking-plugins")
}

func hasPlugins(dir string) bool {
	for _, plugin := range []string{"bridge", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(dir, plugin)); err != nil {
			return false
		}
	}
	return true
}
