package main

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// fetcher downloads files of publishers, each once, and gives none away that does
// not match its checksum.
type fetcher struct {
	client *http.Client
	sites  map[site]string
	pins   map[string]string
	dir    string
	// idle is how long a download may stand still.
	idle    time.Duration
	verbose io.Writer

	// away are the sites that cannot be reached, and why.
	away map[site]error
	// sizes are bytes by URL, 0 if the site does not say.
	sizes map[string]int64
	// files are paths by URL, and failed the reasons for those that are not to be had.
	files  map[string]string
	failed map[string]error
}

// newFetcher returns one that calls a site away if it does not answer within the
// patience.
func newFetcher(sites map[site]string, pins map[string]string, dir string, patience time.Duration, verbose io.Writer) *fetcher {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: patience}).DialContext,
		TLSHandshakeTimeout:   patience,
		ResponseHeaderTimeout: patience,
	}
	return &fetcher{
		client: &http.Client{Transport: transport, CheckRedirect: keepTLS},
		sites:  sites, pins: pins, dir: dir, idle: 4 * patience, verbose: verbose,
		away: map[site]error{}, sizes: map[string]int64{}, files: map[string]string{}, failed: map[string]error{},
	}
}

// keepTLS follows redirects, but not out of TLS.
func keepTLS(next *http.Request, before []*http.Request) error {
	if len(before) >= 10 {
		return errors.New("10 redirects")
	}
	if before[0].URL.Scheme == "https" && next.URL.Scheme != "https" {
		return fmt.Errorf("redirected from https to %s", next.URL.Scheme)
	}
	return nil
}

func (f *fetcher) url(s source) string { return f.sites[s.site] + "/" + s.path }

// ask finds out whether a file can be downloaded, and how large it is.
func (f *fetcher) ask(ctx context.Context, s source) error {
	address := f.url(s)
	if f.pins[s.path] == "" && (s.sums == "" || !strings.HasPrefix(address, "https://")) {
		return fmt.Errorf("%s: no checksum of it is pinned, and there is none to be had over https", address)
	}
	if err := f.away[s.site]; err != nil {
		return err
	}
	if _, known := f.sizes[address]; known {
		return nil
	}
	response, err := f.do(ctx, http.MethodHead, address)
	var unreachable *url.Error
	if errors.As(err, &unreachable) {
		f.away[s.site] = fmt.Errorf("%s cannot be reached: %w", f.sites[s.site], unreachable.Err)
		return f.away[s.site]
	}
	if err != nil {
		_, _ = fmt.Fprintf(f.verbose, "tools: %v\n", err)
		return err
	}
	_ = response.Body.Close() // HEAD has none
	f.sizes[address] = max(response.ContentLength, 0)
	return nil
}

// complaints name the sites that cannot be reached.
func (f *fetcher) complaints() []string {
	var all []string
	for one, err := range f.away {
		all = append(all, fmt.Sprintf("%v (%s=... names a mirror)", err, one))
	}
	slices.Sort(all)
	return all
}

func (f *fetcher) megabytes(files map[string]source) int64 {
	var bytes int64
	for address := range files {
		bytes += f.sizes[address]
	}
	return bytes >> 20
}

// do sends a request; any answer but 200 is an error.
func (f *fetcher) do(ctx context.Context, method, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	response, err := f.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s: %s", address, response.Status)
	}
	return response, nil
}

// program writes the program of a source to a file.
func (f *fetcher) program(ctx context.Context, s source, to string) error {
	address := f.url(s)
	if err := f.failed[address]; err != nil {
		return err
	}
	if f.files[address] == "" {
		file := filepath.Join(f.dir, fmt.Sprintf("download-%d", len(f.files)))
		if err := f.fetch(ctx, s, file); err != nil {
			f.failed[address] = err
			return err
		}
		f.files[address] = file
	}
	if s.member == "" {
		file := f.files[address]
		delete(f.files, address) // of one program only
		return os.Rename(file, to)
	}
	if err := extract(f.files[address], s.member, to); err != nil {
		return fmt.Errorf("take %s out of %s: %w", s.member, address, err)
	}
	return nil
}

// fetch downloads a file and compares its checksum.
func (f *fetcher) fetch(ctx context.Context, s source, to string) error {
	want, err := f.checksum(ctx, s)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(f.verbose, "tools: %s, checksum %s\n", f.url(s), want)
	sum := newHash(want)
	if err := f.save(ctx, f.url(s), to, sum); err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)); got != want {
		return fmt.Errorf("%s is not what it should be: its checksum is %s, not %s", f.url(s), got, want)
	}
	return nil
}

// save writes what an address answers, and gives up when that stands still.
func (f *fetcher) save(ctx context.Context, address, to string, sum hash.Hash) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	response, err := f.do(ctx, http.MethodGet, address)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	stalled := fmt.Errorf("nothing came for %s", f.idle)
	timer := time.AfterFunc(f.idle, func() { cancel(stalled) })
	defer timer.Stop()
	err = writeFile(to, io.TeeReader(response.Body, io.MultiWriter(sum, pulse{timer, f.idle})))
	if errors.Is(context.Cause(ctx), stalled) {
		err = stalled
	}
	if err != nil {
		return fmt.Errorf("%s broke off: %w", address, err)
	}
	return nil
}

// pulse puts a timer off whenever something comes.
type pulse struct {
	timer *time.Timer
	by    time.Duration
}

func (p pulse) Write(data []byte) (int, error) {
	p.timer.Reset(p.by)
	return len(data), nil
}
