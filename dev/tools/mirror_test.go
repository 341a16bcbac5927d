package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

var archivePath = "toys-" + runtime.GOOS + "-" + runtime.GOARCH + ".tar.gz"

// mirror serves files; each field makes it misbehave.
type mirror struct {
	*httptest.Server
	mu        sync.Mutex
	files     map[string][]byte
	downloads atomic.Int64
	// begun gets a word when a download has begun, if hold says until when it waits.
	begun, hold chan struct{}
	// half ends downloads in their middle.
	half bool
	// silent waits for hold before it answers at all.
	silent   bool
	redirect string
}

func newMirror(t *testing.T) *mirror {
	m := &mirror{begun: make(chan struct{}, 8), files: map[string][]byte{
		archivePath: pack(t, map[string][]byte{"toys/toy": toy(t, "downloaded"), "toys/rattle": toy(t, "downloaded")}),
	}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

// change sets fields while the mirror serves.
func (m *mirror) change(what func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	what()
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	m.mu.Lock()
	content, there := m.files[path]
	redirect, silent, half, hold := m.redirect, m.silent, m.half, m.hold
	m.mu.Unlock()
	switch {
	case redirect != "":
		http.Redirect(w, r, redirect+r.URL.Path, http.StatusFound)
		return
	case silent:
		<-hold
		return
	case !there:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	if r.Method == http.MethodHead {
		return
	}
	m.downloads.Add(1)
	if hold != nil || half {
		_, _ = w.Write(content[:len(content)/2])
		w.(http.Flusher).Flush()
		if half {
			panic(http.ErrAbortHandler)
		}
		m.begun <- struct{}{}
		<-hold
		content = content[len(content)/2:]
	}
	_, _ = w.Write(content)
}

// pack makes an archive as publishers do.
func pack(t *testing.T, files map[string][]byte) []byte {
	var out bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&out, gzip.NoCompression)
	require.NoError(t, err)
	archive := tar.NewWriter(compressed)
	for name, content := range files {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: "./" + name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}))
		_, err := archive.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, compressed.Close())
	return out.Bytes()
}

// toyFolder is set by TestMain.
var toyFolder string

// buildToys compiles those that say what the compiled one of testdata does not.
var buildToys = sync.OnceValue(func() string {
	folder := toyFolder
	must(os.CopyFS(folder, os.DirFS("testdata")))
	for name, line := range map[string]string{"downloaded": "toy v1 downloaded", "present": "toy v1 present", "old": "toy v0 old"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(folder, name), "-ldflags", "-X 'main.line="+line+"'", "./toy")
		cmd.Dir, cmd.Env = filepath.Join(folder, "tools"), append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			panic(string(out))
		}
	}
	return folder
})

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func toy(t *testing.T, which string) []byte {
	data, err := os.ReadFile(filepath.Join(buildToys(), which))
	require.NoError(t, err)
	return data
}

// repository is one in which the command runs.
type repository struct {
	*testing.T
	root, self string
	env        []string
}

// newRepository has the mirror for both sites, and no other programs than the given
// folders'.
func newRepository(t *testing.T, mirror string, folders ...string) *repository {
	r := &repository{T: t, root: t.TempDir()}
	require.NoError(t, os.CopyFS(r.root, os.DirFS("testdata")))
	goTool, err := exec.LookPath("go")
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	r.self = filepath.Join(t.TempDir(), "tools")
	require.NoError(t, os.Symlink(self, r.self))
	path := strings.Join(append(folders, filepath.Dir(goTool)), string(filepath.ListSeparator))
	r.set("HOME="+t.TempDir(), "PATH="+path, "KUBEBUILDER_ASSETS=", "XDG_DATA_HOME=", "GOBIN=", "TOOLS=", "V=",
		string(githubSite)+"="+mirror, string(kubernetesSite)+"="+mirror)
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		out, err := exec.Command("go", "env", name).Output()
		require.NoError(t, err)
		r.set(name + "=" + strings.TrimSpace(string(out)))
	}
	return r
}

func (r *repository) set(variables ...string) { r.env = append(r.env, variables...) }

func (r *repository) pin(path string, content []byte) {
	file, err := os.OpenFile(filepath.Join(r.root, "tools/checksums.txt"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(r, err)
	_, err = fmt.Fprintf(file, "%x  %s\n", sha256.Sum256(content), path)
	require.NoError(r, err)
	require.NoError(r, file.Close())
}

func (r *repository) command(names ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(r.Context(), r.self, names...)
	var out bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.root, append(os.Environ(), r.env...), &out, &out
	return cmd, &out
}

func (r *repository) fails(names ...string) string {
	cmd, out := r.command(names...)
	require.Error(r, cmd.Run(), out)
	return out.String()
}

func (r *repository) succeeds(names ...string) string {
	cmd, out := r.command(names...)
	require.NoError(r, cmd.Run(), out)
	require.NoDirExists(r, filepath.Join(r.root, "bin/.new"))
	return out.String()
}

// says is what an installed program prints.
func (r *repository) says(name string) string {
	out, err := exec.Command(filepath.Join(r.root, "bin", name)).Output()
	require.NoError(r, err)
	return string(out)
}

// gone is an address at which nobody listens.
func gone() string {
	server := httptest.NewServer(nil)
	server.Close()
	return server.URL
}
