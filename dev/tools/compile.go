package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// compile builds a program without C, so that it needs no libraries, and returns its file.
func (i *installer) compile(ctx context.Context, p program) (string, error) {
	file := filepath.Join(i.bin.work(), p.name)
	arguments := []string{"install", "-trimpath", "-ldflags", "-s -w", p.pkg + "@" + p.version}
	if p.version == "" {
		arguments = []string{"build", "-trimpath", "-ldflags", "-s -w " + versionFlags(), "-o", file, p.pkg}
	}
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = "tools"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if p.version != "" {
		// go install names a program after its folder, in a folder of its own here.
		folder := file + ".install"
		cmd.Env = append(cmd.Env, "GOBIN="+folder)
		file = filepath.Join(folder, path.Base(p.pkg))
	}
	var said bytes.Buffer
	cmd.Stdout = io.MultiWriter(&said, i.verbose)
	cmd.Stderr = cmd.Stdout
	// go removes its own files then.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("compile %s: %w\n%s", p.name, err, strings.TrimSpace(said.String()))
	}
	return file, nil
}

// versionFlags tell Kubernetes' programs what they are, which their own build does otherwise.
func versionFlags() string {
	const component = "-X k8s.io/component-base/version."
	parts := strings.Split(strings.TrimPrefix(kubernetes, "v"), ".")
	return fmt.Sprintf("%sgitVersion=%s %sgitMajor=%s %sgitMinor=%s", component, kubernetes, component, parts[0], component, parts[1])
}
