package realnode

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
)

// PauseImage is the name of the image whose container keeps the namespaces of each pod. The program of the
// image waits for SIGTERM.
const PauseImage = "docker.io/local/pause:1"

// Image is an image that contains a single program and no other file. Two images with the same
// program but different variables have different ids.
type Image struct {
	// Name is the full name, such as docker.io/local/app:1.
	Name string
	// Program is the path of a static program on this machine.
	Program string
	// Command is the default command. The first element is the path of the program in the image.
	Command []string
	// Env contains the environment variables of containers, as KEY=value.
	Env []string
	// User is the default user. Without a user, containers run as root.
	User string
}

// write writes the image in the format of `docker save`.
func (i Image) write(to io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Command, "Env": append([]string{"PATH=/"}, i.Env...), "User": i.User},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	manifest, err := json.Marshal([]map[string]any{
		{"Config": "config.json", "RepoTags": []string{i.Name}, "Layers": []string{"layer.tar"}},
	})
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	archive := tar.NewWriter(to)
	for _, file := range []struct {
		name    string
		content []byte
	}{{"layer.tar", layer}, {"config.json", config}, {"manifest.json", manifest}} {
		if err := add(archive, file.name, 0o644, file.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (i Image) layer() ([]byte, error) {
	program, err := os.ReadFile(i.Program)
	if err != nil {
		return nil, fmt.Errorf("read its program (make e2e-node builds it): %w", err)
	}
	var buffer bytes.Buffer
	layer := tar.NewWriter(&buffer)
	if err := add(layer, path.Base(i.Command[0]), 0o755, program); err != nil {
		return nil, err
	}
	if err := layer.Close(); err != nil {
		return nil, fmt.Errorf("write its layer: %w", err)
	}
	return buffer.Bytes(), nil
}

func add(archive *tar.Writer, name string, mode int64, content []byte) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err := archive.Write(content); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
