package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"
)

// readPins reads checksums by the path of their file.
func readPins(name string) (map[string]string, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the checksums: %w", err)
	}
	defer func() { _ = file.Close() }()
	pins := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			fields := strings.Fields(line)
			if len(fields) != 2 || !isChecksum(fields[0]) {
				return nil, fmt.Errorf("%s: %q is not a checksum and a path", name, line)
			}
			pins[fields[1]] = fields[0]
		}
	}
	return pins, nil
}

func isChecksum(text string) bool {
	return regexp.MustCompile(`^([0-9a-f]{64}|[0-9a-f]{128})$`).MatchString(text)
}

func newHash(checksum string) hash.Hash {
	if len(checksum) == hexadecimal*sha512.Size {
		return sha512.New()
	}
	return sha256.New()
}

const hexadecimal = 2 // digits a byte

// checksum is the pinned one. Without it, it is the publisher's own, fetched over
// TLS from the site of the file.
func (f *fetcher) checksum(ctx context.Context, s source) (string, error) {
	if pin := f.pins[s.path]; pin != "" {
		return pin, nil
	}
	address := f.sites[s.site] + "/" + s.sums
	response, err := f.do(ctx, http.MethodGet, address)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", address, err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || !isChecksum(fields[0]):
		case len(fields) == 1, len(fields) == 2 && strings.TrimPrefix(fields[1], "*") == path.Base(s.path):
			return fields[0], nil
		}
	}
	return "", fmt.Errorf("%s holds no checksum of %s", address, path.Base(s.path))
}

// extract writes one file of a compressed archive.
func extract(archive, member, to string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	for members := tar.NewReader(compressed); ; {
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			return errors.New("it is not there")
		}
		if err != nil {
			return err
		}
		if path.Clean(header.Name) == member && header.Typeflag == tar.TypeReg {
			return writeFile(to, members)
		}
	}
}
