package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const controlGroups = "/sys/fs/cgroup"

// controlGroup returns the name of the control group of all pods of a run. The control group is below the
// root of each hierarchy.
func controlGroup(state string) string { return filepath.Base(state) }

// hierarchies returns the directories of the root groups. In version 1, each controller has a directory.
// Version 2 has only one directory.
func hierarchies() ([]string, error) {
	if unified(controlGroups) {
		return []string{controlGroups}, nil
	}
	entries, err := os.ReadDir(controlGroups)
	if err != nil {
		return nil, fmt.Errorf("read control groups: %w", err)
	}
	var found []string
	for _, entry := range entries {
		dir := filepath.Join(controlGroups, entry.Name())
		// The links cpu and cpuacct, which point to cpu,cpuacct, are skipped.
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil && entry.IsDir() {
			found = append(found, dir)
		}
	}
	return found, nil
}

func unified(dir string) bool {
	var info unix.Statfs_t
	return unix.Statfs(dir, &info) == nil && info.Type == unix.CGROUP2_SUPER_MAGIC
}

// makeControlGroups creates the control group name that the kubelet uses.
func makeControlGroups(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			return fmt.Errorf("make a control group: %w", err)
		}
	}
	return copyProcessors(name)
}

// copyProcessors copies the processors and memory nodes of the root group to a new group of
// version 1. The kernel does not set these values in a new group.
func copyProcessors(name string) error {
	root := filepath.Join(controlGroups, "cpuset")
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(root, file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name, file), value, 0o644)
		}
		if err != nil {
			return fmt.Errorf("give a control group its processors: %w", err)
		}
	}
	return nil
}

// emptyWithin is the timeout for the removal of ended processes from a control group.
const emptyWithin = 10 * time.Second

// removeControlGroups removes the control group name and all control groups below.
func removeControlGroups(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		deadline := time.Now().Add(emptyWithin)
		for {
			err := removeGroup(filepath.Join(root, name))
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				return fmt.Errorf("remove control groups: %w", err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

// removeGroup removes the directories of a control group. The kernel removes the files in these
// directories.
func removeGroup(dir string) error {
	var groups []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, group := range slices.Backward(groups) {
		if err := unix.Rmdir(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", group, err)
		}
	}
	return nil
}
