package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
)

type connection struct {
	*tls.Conn
	reader *bufio.Reader
	answer []byte
}

// buffered reads whatever has come with one call, where TLS would take two for
// each record.
type buffered struct {
	net.Conn
	reader *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.reader.Read(p) }

func (l *load) dial(ctx context.Context) (*connection, error) {
	plain, err := new(net.Dialer).DialContext(ctx, "tcp", l.address)
	if err != nil {
		return nil, fmt.Errorf("connect to the webhook: %w", err)
	}
	secured := tls.Client(buffered{plain, bufio.NewReaderSize(plain, 64<<10)}, l.config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the webhook: %w", err), plain.Close())
	}
	return &connection{Conn: secured, reader: bufio.NewReaderSize(secured, 64<<10)}, nil
}

// exchange leaves the answer in the connection's memory.
func (c *connection) exchange(request []byte) error {
	if _, err := c.Write(request); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	status, length, err := c.header()
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	c.answer = slices.Grow(c.answer[:0], length)[:length]
	if _, err := io.ReadFull(c.reader, c.answer); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("the webhook answers %d: %s", status, c.answer)
	}
	return nil
}

// header reads no more of it than is of use here.
func (c *connection) header() (status, length int, err error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if _, rest, found := bytes.Cut(line, []byte(" ")); found && len(rest) > 3 {
		status, err = strconv.Atoi(string(rest[:3]))
	}
	for err == nil {
		if line, err = c.reader.ReadSlice('\n'); err != nil || len(bytes.TrimSpace(line)) == 0 {
			break
		}
		if value, found := bytes.CutPrefix(line, []byte("Content-Length: ")); found {
			length, err = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
	return status, length, err
}
