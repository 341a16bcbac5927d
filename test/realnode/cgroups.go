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

// controlGroup is the group, below the root of each hierarchy, of all pods of a run.
func controlGroup(state string) string { return filepath.Base(state) }

// hierarchies are the folders of the root groups: one each controller (v1), or one (v2).
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
		// cpu,cpuacct is at cpu and at cpuacct too, as links.
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

// makeControlGroups makes the group that the kubelet is to find.
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

// copyProcessors gives a new group of v1 the processors and memory of its parent,
// which it does not have by itself.
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

// emptyWithin is how long the kernel may take to let go of processes that have ended.
const emptyWithin = 10 * time.Second

// removeControlGroups removes the group with those below it.
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

// removeGroup removes the folders alone: the files in there are the kernel's.
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
