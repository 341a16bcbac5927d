package link_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/dev/link"
)

// echo returns each byte to the sender until the test ends.
func echo(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	return listener.Addr().String()
}

func open(t *testing.T) (*link.Link, net.Conn) {
	l, err := link.Open(t.Context(), echo(t))
	require.NoError(t, err)
	t.Cleanup(l.Close)
	c, err := net.Dial("tcp", l.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, say(c, "a"))
	return l, c
}

func say(c net.Conn, what string) error {
	if _, err := c.Write([]byte(what)); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, len(what)))
	return err
}

func TestDelayedBytesArriveLate(t *testing.T) {
	l, c := open(t)
	l.Set(link.State{Hold: true})
	_, err := c.Write([]byte("held"))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nothing may arrive while bytes are held")
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	l.Set(link.State{})
	got := make([]byte, 4)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	assert.Equal(t, "held", string(got))
}

func TestACutLinkResetsAllConnections(t *testing.T) {
	l, c := open(t)
	l.Set(link.State{Cut: true})
	require.Error(t, say(c, "b"))
	again, err := net.Dial("tcp", l.Address())
	if err == nil {
		require.Error(t, say(again, "b"))
	}
	l.Set(link.State{})
	again, err = net.Dial("tcp", l.Address())
	require.NoError(t, err)
	require.NoError(t, say(again, "b"))
}

func TestResetDropsDelayedData(t *testing.T) {
	l, c := open(t)
	l.Set(link.State{Hold: true})
	_, err := c.Write([]byte("held"))
	require.NoError(t, err)
	l.Reset()
	l.Set(link.State{})
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
}
