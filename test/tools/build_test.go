package tools

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	envtestPath = "kubernetes-sigs/controller-tools/releases/download/envtest-v1.36.2/envtest-v1.36.2-linux-amd64.tar.gz"
	kwokPath    = "kubernetes-sigs/kwok/releases/download/v0.8.0/kwok-linux-amd64"

	// compiler is a script that writes "compiled" into the file that go build or go install would write.
	compiler = `#!/usr/bin/env bash
case $1 in
version) [ -e "$3.info" ] && cat "$3.info" ;;
env) echo $([ $2 = GOOS ] && echo linux || echo amd64) ;;
build) while [ "$1" != -o ]; do shift; done; echo compiled >"$2" ;;
install) mkdir -p "$GOBIN" && echo compiled >"$GOBIN/program" ;;
esac
`
)

// TestMain runs the tests, or replaces curl, flock or tar, which a minimal machine does not have.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "curl":
		os.Exit(curl(os.Args[len(os.Args)-1]))
	case "tar":
		if err := unpack(os.Args[2], strings.TrimPrefix(os.Args[4], "*")); err != nil {
			panic(err)
		}
		return
	case "flock":
		if err := syscall.Flock(9, syscall.LOCK_EX); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// unpack prints the file of an archive whose name ends with suffix.
func unpack(archive, suffix string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if err != nil {
			return fmt.Errorf("find %s in %s: %w", suffix, archive, err)
		}
		if strings.HasSuffix(header.Name, suffix) {
			_, err := io.Copy(os.Stdout, files)
			return err
		}
	}
}

// curl prints the response of address, and returns the same exit codes as the program curl.
func curl(address string) int {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Get(address)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Failed to connect:", err)
		return 7
	}
	if response.StatusCode != http.StatusOK {
		fmt.Fprintln(os.Stderr, address, response.Status)
		return 22
	}
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return 18
	}
	return 0
}

// mirror serves files by their path, and counts downloads.
type mirror struct {
	*httptest.Server
	files     map[string][]byte
	downloads atomic.Int64
}

func newMirror(t *testing.T) *mirror {
	m := &mirror{files: map[string][]byte{envtestPath: archive(t, "etcd", "kubectl"), kwokPath: []byte("downloaded\n")}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, found := m.files[strings.TrimPrefix(r.URL.Path, "/")]
	if !found {
		http.NotFound(w, r)
		return
	}
	m.downloads.Add(1)
	_, _ = w.Write(content)
}

func archive(t *testing.T, names ...string) []byte {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	files := tar.NewWriter(compressed)
	for _, name := range names {
		content := []byte("downloaded\n")
		require.NoError(t, files.WriteHeader(&tar.Header{Name: "controller-tools/envtest/" + name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}))
		_, err := files.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, files.Close())
	require.NoError(t, compressed.Close())
	return out.Bytes()
}

// repository is a directory in which the script runs.
type repository struct {
	*testing.T
	root string
	env  []string
}

func newRepository(t *testing.T, mirror string) *repository {
	r := &repository{T: t, root: t.TempDir()}
	require.NoError(t, os.CopyFS(filepath.Join(r.root, "tools"), os.DirFS("../../tools")))
	require.NoError(t, os.Chmod(filepath.Join(r.root, "tools/build.sh"), 0o755))
	r.write("tools/checksums.txt", "")
	r.write("path/go", compiler)
	require.NoError(t, os.Chmod(filepath.Join(r.root, "path/go"), 0o755))
	self, err := os.Executable()
	require.NoError(t, err)
	for _, name := range []string{"curl", "flock", "tar"} {
		require.NoError(t, os.Symlink(self, filepath.Join(r.root, "path", name)))
	}
	r.env = append(os.Environ(), "PATH="+filepath.Join(r.root, "path")+":"+os.Getenv("PATH"), "V=", "TOOLS=",
		"TOOLS_GITHUB_URL="+mirror, "TOOLS_KUBERNETES_URL="+mirror)
	return r
}

func (r *repository) write(name, content string) {
	require.NoError(r, os.MkdirAll(filepath.Dir(filepath.Join(r.root, name)), 0o755))
	require.NoError(r, os.WriteFile(filepath.Join(r.root, name), []byte(content), 0o600))
}

func (r *repository) pin(m *mirror, paths ...string) {
	var lines strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(m.files[path]), path)
	}
	r.write("tools/checksums.txt", lines.String())
}

func (r *repository) run(mode string, names ...string) (string, error) {
	cmd := exec.CommandContext(r.Context(), filepath.Join(r.root, "tools/build.sh"), names...)
	cmd.Env = append(r.env, "TOOLS="+mode)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *repository) succeeds(mode string, names ...string) string {
	r.Helper()
	out, err := r.run(mode, names...)
	require.NoError(r, err, out)
	require.NoDirExists(r, filepath.Join(r.root, "bin/.new"))
	return out
}

func (r *repository) content(name string) string {
	data, err := os.ReadFile(filepath.Join(r.root, "bin", name))
	require.NoError(r, err)
	return strings.TrimSpace(string(data))
}

func TestAProgramThatCannotBeDownloadedIsCompiled(t *testing.T) {
	away := httptest.NewServer(nil)
	away.Close()
	r := newRepository(t, away.URL)
	r.pin(&mirror{}, envtestPath, kwokPath)
	out := r.succeeds("", "etcd", "kwok", "helm")
	assert.Equal(t, 1, strings.Count(out, "Failed to connect"), "a site is asked once: %s", out)
	for _, name := range []string{"etcd", "kwok", "helm"} {
		assert.Equal(t, "compiled", r.content(name), name)
	}
	out, err := r.run("download", "kubectl")
	require.Error(t, err)
	assert.Contains(t, out, "kubectl cannot be downloaded")
}

// The script has no download addresses of helm, controller-gen and workflowcheck.
func TestAProgramWithoutADownloadIsAlwaysCompiled(t *testing.T) {
	r := newRepository(t, "http://127.0.0.1:1")
	for _, name := range []string{"helm", "controller-gen", "workflowcheck"} {
		assert.Contains(t, r.succeeds("download", name), "compiled in", name)
		assert.Equal(t, "compiled", r.content(name), name)
		assert.Empty(t, r.succeeds("download", name), name)
	}
}

func TestAnArchiveIsDownloadedOnceAndItsProgramsAreLeftAlone(t *testing.T) {
	m := newMirror(t)
	r := newRepository(t, m.URL)
	r.pin(m, envtestPath, kwokPath)
	assert.Regexp(t, `etcd +downloaded in \d+ s\n +kubectl +downloaded in \d+ s\n +kwok +downloaded in`, r.succeeds("download", "etcd", "kubectl", "kwok"))
	assert.EqualValues(t, 2, m.downloads.Load())
	for _, name := range []string{"etcd", "kubectl", "kwok"} {
		assert.Equal(t, "downloaded", r.content(name), name)
	}
	m.Close()
	assert.Empty(t, r.succeeds("", "etcd", "kubectl", "kwok"))

	assert.Contains(t, r.succeeds("build", "etcd"), "compiled in")
	assert.Equal(t, "compiled", r.content("etcd"))
	assert.Empty(t, r.succeeds("build", "etcd"))
	assert.Empty(t, r.succeeds("", "etcd"))
	r.write("tools/go.mod", "module another")
	assert.Contains(t, r.succeeds("build", "etcd"), "compiled in", "another version is due")
}

// A program without a stamp was copied from another clone.
func TestACopiedProgramIsRecognisedByItsVersion(t *testing.T) {
	const (
		kwok    = "sigs.k8s.io/kwok"
		kubectl = "k8s.io/kubernetes"
	)
	for name, c := range map[string]struct {
		program, path, module, version string
		recognised                     bool
	}{
		"the version of the script":   {"kwok", kwok + "/cmd/kwok", kwok, "v0.8.0", true},
		"the version of go.mod":       {"kubectl", kubectl + "/cmd/kubectl", kubectl, "v1.36.3", true},
		"an older version":            {"kwok", kwok + "/cmd/kwok", kwok, "v0.7.0", false},
		"not the version of go.mod":   {"kubectl", kubectl + "/cmd/kubectl", kubectl, "v1.36.30", false},
		"another program":             {"kwok", kwok + "/cmd/kwokctl", kwok, "v0.8.0", false},
		"no version":                  {"kwok", kwok + "/cmd/kwok", kwok, "(devel)", false},
		"no version, of go.mod":       {"kubectl", kubectl + "/cmd/kubectl", kubectl, "(devel)", false},
		"no build information at all": {program: "kwok"},
	} {
		r := newRepository(t, "http://127.0.0.1:1")
		r.write("bin/"+c.program, "copied\n")
		require.NoError(t, os.Chmod(filepath.Join(r.root, "bin", c.program), 0o755))
		if c.path != "" {
			r.write("bin/"+c.program+".info", fmt.Sprintf("bin/%s: go1.26.8\n\tpath\t%s\n\tmod\t%s\t%s\th1:x=\n\tdep\ta.b/c\tv1.0.0\n", c.program, c.path, c.module, c.version))
		}
		out := r.succeeds("build", c.program)
		if !c.recognised {
			assert.Contains(t, out, "compiled in", name)
			continue
		}
		assert.Empty(t, out, name)
		assert.Equal(t, "copied", r.content(c.program), name)
		assert.Empty(t, r.succeeds("build", c.program), name)
	}
}

// The Go compiler writes the build information into the programs in bin.
func TestTheProgramsInBinAreRecognised(t *testing.T) {
	r := newRepository(t, "http://127.0.0.1:1")
	compiler, err := exec.LookPath("go")
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(r.root, "path/go")))
	require.NoError(t, os.Symlink(compiler, filepath.Join(r.root, "path/go")))
	require.NoError(t, os.Mkdir(filepath.Join(r.root, "bin"), 0o755))
	for _, name := range []string{"helm", "kubectl"} { // helm is always compiled.
		program, err := filepath.Abs("../../bin/" + name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(program, filepath.Join(r.root, "bin", name)))
		if stamp, err := os.ReadFile("../../bin/.stamp/" + name); err == nil && strings.Contains(string(stamp), "downloaded") {
			continue // The publisher may have built the program without a version.
		}
		assert.Empty(t, r.succeeds("build", name))
	}
}

func TestADownloadWithoutTheRightChecksumIsRejected(t *testing.T) {
	m := newMirror(t)
	r := newRepository(t, m.URL)
	r.pin(m, envtestPath)
	m.files[envtestPath] = append(m.files[envtestPath], 0)
	assert.Contains(t, r.succeeds("", "etcd"), "has the checksum")
	assert.Equal(t, "compiled", r.content("etcd"))
	out, err := r.run("download", "kwok", "kube-scheduler")
	require.Error(t, err)
	assert.Contains(t, out, "no checksum of "+m.URL+"/"+kwokPath+" is pinned, and none can be fetched over https")
	assert.NoFileExists(t, filepath.Join(r.root, "bin/kwok"))
}

func TestThePublishersChecksumIsFetchedOverTLS(t *testing.T) {
	m := newMirror(t)
	const path = "release/v1.36.3/bin/linux/amd64/kube-scheduler"
	m.files[path] = []byte("downloaded\n")
	m.files[path+".sha256"] = fmt.Appendf(nil, "%x", sha256.Sum256(m.files[path]))
	trusted := httptest.NewTLSServer(m)
	t.Cleanup(trusted.Close)
	r := newRepository(t, trusted.URL)
	r.succeeds("download", "kube-scheduler")
	assert.Equal(t, "downloaded", r.content("kube-scheduler"))
}

func TestRunsAtTheSameTimeDownloadOnce(t *testing.T) {
	m := newMirror(t)
	r := newRepository(t, m.URL)
	r.pin(m, envtestPath)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			out, err := r.run("download", "etcd")
			assert.NoError(t, err, out)
		})
	}
	all.Wait()
	assert.EqualValues(t, 1, m.downloads.Load())
}

func TestUnknownNamesAreRejected(t *testing.T) {
	r := newRepository(t, "http://127.0.0.1:1")
	out, err := r.run("", "rudder")
	require.Error(t, err)
	assert.Contains(t, out, "rudder: unknown program; there are etcd ")
	out, err = r.run("fetch")
	require.Error(t, err)
	assert.Contains(t, out, "TOOLS=fetch: use auto, download or build")
}

// Every checksum must belong to a file that is downloaded, and the versions must be equal to the versions in
// go.mod.
func TestPinsAndVersionsBelongTogether(t *testing.T) {
	script, err := os.ReadFile("../../tools/build.sh")
	require.NoError(t, err)
	pins, err := os.ReadFile("../../tools/checksums.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(pins)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		version := regexp.MustCompile(`v\d+\.\d+\.\d+`).FindString(line)
		assert.Contains(t, string(script), version, line)
	}
	for file, required := range map[string]string{
		"go.mod": `k8s\.io/kubernetes (v1\.36\.\d+)`, "prometheus/go.mod": `github\.com/prometheus/prometheus v0\.(3)(\d\d)\.(\d+)`,
	} {
		module, err := os.ReadFile(filepath.Join("../../tools", file))
		require.NoError(t, err)
		found := regexp.MustCompile(required).FindStringSubmatch(string(module))
		require.NotEmpty(t, found, file)
		assert.Contains(t, string(script), strings.Join(found[1:], "."), file)
	}
}
