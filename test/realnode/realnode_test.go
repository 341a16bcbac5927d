package realnode

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unpack returns the content of each file of a tar archive, by file name.
func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		files[header.Name], err = io.ReadAll(reader)
		require.NoError(t, err)
	}
}

func TestImagesOfOneProgramShareItsLayerAndDifferInTheirConfiguration(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, []byte("static"), 0o755))
	var all []map[string][]byte
	for _, tag := range []string{"v1", "v2"} {
		image := Image{Name: "docker.io/local/side:" + tag, Program: program, Command: []string{"/side", "wait"}, Env: []string{"TAG=" + tag}}
		var archive bytes.Buffer
		require.NoError(t, image.write(&archive))
		all = append(all, unpack(t, archive.Bytes()))
	}
	first, second := all[0], all[1]
	assert.Equal(t, first["layer.tar"], second["layer.tar"])
	assert.NotEqual(t, first["config.json"], second["config.json"])
	assert.Equal(t, map[string][]byte{"side": []byte("static")}, unpack(t, first["layer.tar"]))
	var manifest []struct{ RepoTags, Layers []string }
	require.NoError(t, json.Unmarshal(first["manifest.json"], &manifest))
	assert.Equal(t, []string{"docker.io/local/side:v1"}, manifest[0].RepoTags)
	assert.Equal(t, []string{"layer.tar"}, manifest[0].Layers)
}

func TestAProgramThatWasNotBuiltIsNamedWithTheRemedy(t *testing.T) {
	err := Image{Name: "x:1", Program: "/no/such/program", Command: []string{"/x"}}.write(io.Discard)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "make e2e-node")
}

func TestAllThatAMachineLacksIsSaidAtOnce(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := CheckMachine()
	for _, program := range []string{"containerd", "ctr", "runc"} {
		assert.ErrorContains(t, err, program+": apt-get install ")
	}
}

func TestGroupsAreRemovedFromTheInside(t *testing.T) {
	root := filepath.Join(t.TempDir(), "pods")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "burstable", "pod"), 0o755))
	require.NoError(t, removeGroup(root))
	assert.NoDirExists(t, root)
	require.NoError(t, removeGroup(root), "a second time is no error")
}
