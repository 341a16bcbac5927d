package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be the command too, with toys in place of the
// programs, which take minutes to compile.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "tools" {
		os.Exit(command(toys()))
	}
	folder, err := os.MkdirTemp("", "toys")
	must(err)
	toyFolder = folder
	code := m.Run()
	must(os.RemoveAll(folder))
	os.Exit(code)
}

// toys print "toy v1 <where it came from>".
func toys() []program {
	archive := func(name string) source {
		return source{site: githubSite, path: "toys-{os}-{arch}.tar.gz", member: "toys/" + name}
	}
	return []program{
		{name: "toy", pkg: "example.com/tools/toy", minutes: 0.1, fits: "toy v1 ", sources: []source{archive("toy"), {site: kubernetesSite, path: "toy", sums: "toy.sha256"}}},
		{name: "rattle", pkg: "example.com/tools/toy", minutes: 0.1, fits: "toy v1 ", sources: []source{archive("rattle")}},
		{name: "drum", pkg: "example.com/tools/toy", minutes: 0.1, optional: true},
	}
}

func TestWhatCannotBeDownloadedIsCompiled(t *testing.T) {
	r := newRepository(t, gone())
	r.pin(archivePath, nil)
	out := r.succeeds()
	assert.Equal(t, 1, strings.Count(out, "cannot be reached"), out)
	assert.Contains(t, out, "connection refused (TOOLS_GITHUB_URL=... names a mirror)")
	assert.Contains(t, out, "to compile, up to 0.2 min on two cores, once: toy, rattle")
	assert.Equal(t, "toy v1 compiled\n", r.says("toy"))
	assert.NoFileExists(t, filepath.Join(r.root, "bin/drum"))
	assert.Contains(t, r.succeeds("drum"), "compiled in")
}

func TestOnlyDownloadsAreAskedFor(t *testing.T) {
	r := newRepository(t, gone())
	r.set("TOOLS=download")
	r.pin(archivePath, nil)
	assert.Regexp(t, `toy is not there in a version that fits, and cannot be downloaded\n.* cannot be reached: .*refused`, r.fails())
	assert.Contains(t, r.fails("drum"), "drum is not there")
	assert.NoFileExists(t, filepath.Join(r.root, "bin/toy"))
}

func TestAFileIsDownloadedOnceAndThenLeftAlone(t *testing.T) {
	m := newMirror(t)
	r := newRepository(t, m.URL)
	r.pin(archivePath, m.files[archivePath])
	assert.Contains(t, r.succeeds(), "to download, ")
	assert.EqualValues(t, 1, m.downloads.Load())
	assert.Equal(t, "toy v1 downloaded\n", r.says("toy"))
	assert.Equal(t, "toy v1 downloaded\n", r.says("rattle"))

	m.Close()
	before := listing(t, r.root)
	assert.Empty(t, r.succeeds())
	assert.Equal(t, before, listing(t, r.root))

	// Whoever compiles wants what was compiled.
	r.set("TOOLS=build")
	assert.Contains(t, r.succeeds(), "to compile")
	assert.Equal(t, "toy v1 compiled\n", r.says("toy"))
	assert.Empty(t, r.succeeds())
	r.set("TOOLS=auto")
	assert.Empty(t, r.succeeds())
	require.NoError(t, os.WriteFile(filepath.Join(r.root, "tools/go.mod"), []byte("module example.com/tools\n\ngo 1.26\n"), 0o600))
	assert.Contains(t, r.succeeds(), "to compile", "another version is due")
}

// listing is every file with the time of its last change.
func listing(t *testing.T, root string) map[string]time.Time {
	all := map[string]time.Time{}
	require.NoError(t, filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		all[path] = info.ModTime()
		return err
	}))
	return all
}

func TestWhatIsNotWhatItShouldBeIsThrownAway(t *testing.T) {
	for name, spoil := range map[string]func(*mirror){
		"is not what it should be": func(m *mirror) { m.files[archivePath] = append(m.files[archivePath], 0) },
		"broke off":                func(m *mirror) { m.half = true },
		"404 Not Found":            func(m *mirror) { delete(m.files, archivePath) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			r := newRepository(t, m.URL)
			r.pin(archivePath, m.files[archivePath])
			m.change(func() { spoil(m) })
			r.set("TOOLS=download")
			assert.Contains(t, r.fails("rattle"), name)
			assert.NoFileExists(t, filepath.Join(r.root, "bin/rattle"))
			r.set("TOOLS=auto")
			r.succeeds("rattle")
			assert.Equal(t, "toy v1 compiled\n", r.says("rattle"))
		})
	}
}

func TestAnotherVersionUnderTheRightChecksumIsThrownAway(t *testing.T) {
	m := newMirror(t)
	m.change(func() {
		m.files[archivePath] = pack(t, map[string][]byte{"toys/toy": toy(t, "old"), "toys/rattle": toy(t, "downloaded")})
	})
	m.change(func() { m.files["toy"] = toy(t, "downloaded") })
	r := newRepository(t, m.URL)
	r.pin(archivePath, m.files[archivePath])
	r.pin("toy", m.files["toy"])
	assert.Contains(t, r.succeeds(), `holds another version: it says "toy v0 old", not "toy v1 "`)
	assert.Equal(t, "toy v1 downloaded\n", r.says("toy"), "the next source has it")
}

func TestWithoutAPinThePublishersChecksumIsWantedOverTLS(t *testing.T) {
	m := newMirror(t)
	m.change(func() { m.files["toy"] = toy(t, "downloaded") })
	m.change(func() { m.files["toy.sha256"] = fmt.Appendf(nil, "%x", sha256.Sum256(m.files["toy"])) })
	plain := newRepository(t, m.URL)
	plain.set("TOOLS=download")
	assert.Contains(t, plain.fails("toy"), "no checksum of it is pinned, and there is none to be had over https")

	trusted := httptest.NewTLSServer(m.Config.Handler)
	t.Cleanup(trusted.Close)
	r := newRepository(t, trusted.URL)
	certificate := filepath.Join(r.root, "ca.crt")
	require.NoError(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.Certificate().Raw}), 0o600))
	r.set("TOOLS=download", "SSL_CERT_FILE="+certificate)
	m.change(func() {
		m.files["toy.sha256"] = fmt.Appendf(nil, "%x  other\n%x *toy\n", sha256.Sum256(nil), sha256.Sum256(m.files["toy"]))
	})
	r.succeeds("toy")
	assert.Equal(t, "toy v1 downloaded\n", r.says("toy"))

	liar := newRepository(t, trusted.URL)
	liar.set("TOOLS=download", "SSL_CERT_FILE="+certificate)
	m.change(func() { m.files["toy.sha256"] = fmt.Appendf(nil, "%x", sha256.Sum256(nil)) })
	assert.Contains(t, liar.fails("toy"), "is not what it should be")
	m.change(func() { m.files["toy.sha256"] = []byte("<html>") })
	assert.Contains(t, liar.fails("toy"), "holds no checksum of toy")
	m.change(func() { m.redirect = m.URL })
	assert.Contains(t, liar.fails("toy"), "redirected from https to http")
}

func TestWhatIsThereIsCopiedIfItFits(t *testing.T) {
	folder := func(content []byte, mode os.FileMode) string {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "toy"), content, mode))
		return dir
	}
	old := folder(toy(t, "old"), 0o755)
	script := folder([]byte("#!/bin/sh\necho toy v1 script\n"), 0o755)
	plain := folder(toy(t, "present"), 0o644)
	good := folder(toy(t, "present"), 0o755)
	r := newRepository(t, gone(), old, script, plain, good)
	r.set("V=1")
	out := r.succeeds("toy")
	assert.Contains(t, out, filepath.Join(old, "toy")+` does not fit: it says "toy v0 old", not "toy v1 "`)
	assert.Contains(t, out, "copied from "+filepath.Join(good, "toy"))
	assert.Equal(t, "toy v1 present\n", r.says("toy"))
	require.NoError(t, os.Remove(filepath.Join(good, "toy")))
	assert.Equal(t, "toy v1 present\n", r.says("toy"))

	r = newRepository(t, gone(), old, script, plain)
	r.succeeds("toy")
	assert.Equal(t, "toy v1 compiled\n", r.says("toy"))
}

func TestEnvtestsFoldersAreLookedInto(t *testing.T) {
	for variable, below := range map[string]string{"KUBEBUILDER_ASSETS": "", "XDG_DATA_HOME": "kubebuilder-envtest/k8s/1.36.0-" + runtime.GOOS + "-" + runtime.GOARCH} {
		folder := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(folder, below), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, below, "toy"), toy(t, "present"), 0o755))
		r := newRepository(t, gone())
		r.set(variable+"="+folder, "TOOLS=download")
		assert.Contains(t, r.succeeds("toy"), "on this machine already: toy", variable)
	}
}

func TestRunsAtTheSameTimeDownloadOnce(t *testing.T) {
	m := newMirror(t)
	m.change(func() { m.hold = make(chan struct{}) })
	r := newRepository(t, m.URL)
	r.pin(archivePath, m.files[archivePath])
	var all []*exec.Cmd
	var said []*bytes.Buffer
	for range 4 {
		cmd, out := r.command()
		require.NoError(t, cmd.Start())
		all, said = append(all, cmd), append(said, out)
	}
	<-m.begun
	close(m.hold)
	for i, cmd := range all {
		require.NoError(t, cmd.Wait(), said[i])
	}
	assert.EqualValues(t, 1, m.downloads.Load())
	assert.Equal(t, "toy v1 downloaded\n", r.says("toy"))
}

func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		m := newMirror(t)
		m.change(func() { m.hold = make(chan struct{}) })
		r := newRepository(t, m.URL)
		r.pin(archivePath, m.files[archivePath])
		cmd, out := r.command()
		require.NoError(t, cmd.Start())
		<-m.begun
		require.NoError(t, cmd.Process.Signal(signal))
		require.Error(t, cmd.Wait())
		assert.NotContains(t, out.String(), "compile", signal)
		assert.NoFileExists(t, filepath.Join(r.root, "bin/toy"))
		close(m.hold)
		r.succeeds() // and finds nothing left
		assert.Equal(t, "toy v1 downloaded\n", r.says("toy"))
	}
}

func TestWrongWordsAreRefused(t *testing.T) {
	r := newRepository(t, gone())
	assert.Contains(t, r.fails("rudder"), "rudder: unknown program; there are toy, rattle, drum")
	r.set("TOOLS=fetch")
	assert.Contains(t, r.fails(), "TOOLS=fetch: use auto, download or build")
}

// In this process, where waiting can be made short.
func TestASiteThatHangsIsGivenUp(t *testing.T) {
	s := source{site: githubSite, path: archivePath, member: "toys/toy"}
	pins := map[string]string{archivePath: strings.Repeat("0", 64)}
	silent, stalling := newMirror(t), newMirror(t)
	silent.change(func() { silent.silent = true })
	for _, m := range []*mirror{silent, stalling} {
		m.change(func() { m.hold = make(chan struct{}) })
		t.Cleanup(func() { close(m.hold) })
	}

	f := newFetcher(map[site]string{githubSite: silent.URL}, pins, t.TempDir(), 100*time.Millisecond, t.Output())
	require.ErrorContains(t, f.ask(t.Context(), s), "cannot be reached")
	f.sites[githubSite] = stalling.URL
	require.ErrorContains(t, f.ask(t.Context(), s), silent.URL, "it is not asked again")

	f = newFetcher(map[site]string{githubSite: stalling.URL}, pins, t.TempDir(), time.Minute, t.Output())
	require.NoError(t, f.ask(t.Context(), s))
	f.idle = 50 * time.Millisecond
	require.ErrorContains(t, f.program(t.Context(), s, filepath.Join(t.TempDir(), "toy")), "broke off: nothing came for 50ms")
}

// Every pin is of a file that is downloaded, and the versions are those that are compiled.
func TestPinsAndVersionsBelongTogether(t *testing.T) {
	pins, err := readPins("../../tools/checksums.txt")
	require.NoError(t, err)
	offered := map[string]bool{}
	for _, p := range programs() {
		if p.fits == "" {
			assert.Empty(t, p.sources, "%s could not be checked", p.name)
		}
		for _, s := range p.sources {
			for _, goos := range []string{"linux", "darwin"} {
				for _, arch := range []string{"amd64", "arm64"} {
					on := s.on(goos, arch)
					offered[on.path] = true
					if goos == "linux" {
						assert.True(t, pins[on.path] != "" || on.sums != "", "nothing is known of %s", on.path)
					}
				}
			}
		}
		if p.version != "" {
			for _, s := range p.sources {
				assert.Contains(t, s.path, p.version)
			}
		}
	}
	for path := range pins {
		assert.True(t, offered[path], path)
	}
	module, err := os.ReadFile("../../tools/go.mod")
	require.NoError(t, err)
	assert.True(t, regexp.MustCompile(`k8s\.io/kubernetes `+regexp.QuoteMeta(kubernetes)+`\s`).Match(module), kubernetes)
	etcd := regexp.MustCompile(`go\.etcd\.io/etcd/server/v3 (v\S+)`).FindSubmatch(module)
	require.Len(t, etcd, 2)
	assert.Contains(t, programs()[0].sources[1].path, "/"+string(etcd[1])+"/")
}

// The script itself, with the real list and real programs, from a mirror of them.
func TestTheScriptDownloadsRealPrograms(t *testing.T) {
	built := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join("../../bin", name))
		require.NoError(t, err, "run tools/build.sh %s", name)
		return data
	}
	archive := pack(t, map[string][]byte{"controller-tools/envtest/etcd": built("etcd"), "controller-tools/envtest/kubectl": built("kubectl")})
	m := newMirror(t)
	r := newRepository(t, m.URL)
	for name, content := range map[string][]byte{"etcd": archive, "kubectl": archive, "kwok": built("kwok")} {
		p, err := choose(programs(), []string{name})
		require.NoError(t, err)
		path := p[0].sources[0].on(runtime.GOOS, runtime.GOARCH).path
		m.change(func() { m.files[path] = content })
		r.pin(path, content)
	}
	for _, part := range []string{"tools/build.sh", "tools/go.mod"} {
		data, err := os.ReadFile(filepath.Join("../..", part))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(r.root, part), data, 0o755))
	}
	require.NoError(t, os.CopyFS(filepath.Join(r.root, "dev/tools"), os.DirFS(".")))
	require.NoError(t, os.WriteFile(filepath.Join(r.root, "go.mod"), []byte("module example.com\n\ngo 1.26.0\n"), 0o600))

	cmd, out := r.command("etcd", "kubectl", "kwok")
	cmd.Path = filepath.Join(r.root, "tools/build.sh")
	cmd.Env = append(cmd.Env, "TOOLS=download", "PATH="+os.Getenv("PATH"))
	require.NoError(t, cmd.Run(), out)
	for _, name := range []string{"etcd", "kubectl", "kwok"} {
		assert.Regexp(t, name+` +(downloaded|copied from /\S+) in`, out.String())
		assert.FileExists(t, filepath.Join(r.root, "bin", name))
	}
}
