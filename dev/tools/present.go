package main

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// folders are where programs may be already, the most deliberate ones first.
func folders(lookup func(string) string, goos, goarch string) []string {
	home := lookup("HOME")
	data := lookup("XDG_DATA_HOME")
	if data == "" {
		data = filepath.Join(home, ".local/share")
	}
	all := []string{lookup("KUBEBUILDER_ASSETS")}
	// setup-envtest keeps a folder for each version and platform.
	for _, store := range []string{data + "/kubebuilder-envtest", home + "/Library/Application Support/io.kubebuilder.envtest"} {
		found, _ := filepath.Glob(filepath.Join(store, "k8s", "*-"+goos+"-"+goarch)) // no such folder is no error
		all = append(all, found...)
	}
	all = append(all, "/usr/local/kubebuilder/bin")
	all = append(all, filepath.SplitList(lookup("PATH"))...)
	return append(all, lookup("GOBIN"), filepath.Join(home, "go/bin"), filepath.Join(home, ".temporalio/bin"))
}

// present returns the path of a program of a fitting version in one of the folders,
// or nothing.
func (i *installer) present(ctx context.Context, p program) string {
	for _, folder := range i.folders {
		path := filepath.Join(folder, p.name)
		if p.fits == "" || !filepath.IsAbs(path) || folder == i.bin.dir || !runsAnywhere(path) {
			continue
		}
		said := printedVersion(ctx, p, path)
		if strings.Contains(said, p.fits) {
			return path
		}
		i.tell("%s: %s does not fit: it says %q, not %q", p.name, path, said, p.fits)
	}
	return ""
}

// runsAnywhere reports whether a file is a program that needs no libraries: images
// from scratch hold none. On macOS all programs need them.
func runsAnywhere(path string) bool {
	file, err := os.Stat(path)
	if err != nil || !file.Mode().IsRegular() || file.Mode()&0o111 == 0 {
		return false
	}
	if runtime.GOOS != "linux" {
		return true
	}
	program, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = program.Close() }()
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP {
			return false
		}
	}
	return true
}

// printedVersion is the first line that a program prints of its version.
func printedVersion(ctx context.Context, p program, path string) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // a busy machine takes seconds
	defer cancel()
	asks := p.asks
	if asks == nil {
		asks = []string{"--version"}
	}
	out, err := exec.CommandContext(ctx, path, asks...).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
