package webhook

import (
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// lingering is how long the rest of a refused request is waited for.
const lingering = time.Second

// listener speaks TLS on its connections.
type listener struct {
	net.Listener
	config *tls.Config
}

// Accept returns the next connection; its handshake is yet to come.
func (l listener) Accept() (net.Conn, error) {
	plain, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &connection{Conn: tls.Server(plain, l.config)}, nil
}

// connection can be closed although the client still sends.
type connection struct {
	*tls.Conn
	unread atomic.Bool
}

// Close lets the client read its answer: the kernel takes it back from a client
// whose bytes nobody reads.
func (c *connection) Close() error {
	if c.unread.Load() && c.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lingering)) == nil {
		_, _ = io.Copy(io.Discard, c.Conn)
	}
	return c.Conn.Close()
}

// closeAfter makes the answer the last one of its connection, on which part of
// the request may be unread.
func closeAfter(request *fasthttp.RequestCtx) {
	request.SetConnectionClose()
	if c, ok := request.Conn().(*connection); ok {
		c.unread.Store(true)
	}
}
