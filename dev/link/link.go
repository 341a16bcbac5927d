package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// chunkBytes limits the bytes of one read. The bytes of each read are delayed together.
const chunkBytes = 1 << 20

// State describes how a link treats bytes. With the zero State, the link forwards bytes without
// delay.
type State struct {
	// Cut resets all connections, including new connections.
	Cut bool
	// Hold stops the forwarding of bytes in both directions. Connections stay open.
	Hold bool
	// Delay is the delay of each read, in both directions. The next read of a direction begins after the delay.
	Delay time.Duration
}

// Link forwards connections to one address.
type Link struct {
	listener net.Listener
	done     sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond // changed uses mu.
	upstream string
	state    State
	open     map[*connection]bool
}

// connection contains the connection from the client and the connection to the server.
type connection struct{ client, server net.Conn }

// Open returns a link that listens at address, and forwards to upstream.
func Open(ctx context.Context, address, upstream string) (*Link, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open a link to %s: %w", upstream, err)
	}
	return On(listener, upstream), nil
}

// On accepts the connections of listener and forwards the bytes of each connection to upstream. listener may
// terminate TLS.
func On(listener net.Listener, upstream string) *Link {
	l := &Link{listener: listener, upstream: upstream, open: map[*connection]bool{}}
	l.changed = sync.NewCond(&l.mu)
	l.done.Go(l.accept)
	return l
}

// Address returns the host:port on which the link listens.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Set changes the State of the link. The new State also applies to waiting bytes.
func (l *Link) Set(state State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = state
	l.changed.Broadcast()
	if state.Cut {
		l.cut()
	}
}

// Reset resets the open connections and discards their waiting bytes.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut()
}

// Redirect sets the address to which the link forwards, and resets the open connections.
func (l *Link) Redirect(upstream string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.upstream = upstream
	l.cut()
}

// Close closes the link and its connections.
func (l *Link) Close() {
	_ = l.listener.Close()
	l.Set(State{Cut: true})
	l.done.Wait()
}

func (l *Link) cut() {
	for c := range l.open {
		l.reset(c)
	}
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			l.done.Go(func() { l.serve(client) })
		}
	}
}

func (l *Link) serve(client net.Conn) {
	c := &connection{client: client}
	defer l.end(c)
	l.mu.Lock()
	upstream, cut := l.upstream, l.state.Cut
	l.mu.Unlock()
	if cut {
		return
	}
	server, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(context.Background(), "tcp", upstream)
	if err != nil {
		return
	}
	c.server = server
	l.mu.Lock()
	cut = l.state.Cut
	l.open[c] = !cut
	l.mu.Unlock()
	if cut {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.forward(c, client, server) })
	both.Go(func() { l.forward(c, server, client) })
	both.Wait()
}

// forward copies bytes in one direction. When one side closes the connection, both directions are closed,
// because no client of a link uses a half-closed connection.
func (l *Link) forward(c *connection, from io.Reader, to io.Writer) {
	defer l.end(c)
	buffer := make([]byte, chunkBytes)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !l.pass(c) {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// pass waits until the bytes that were just received may be forwarded. If the connection ends first, pass
// returns false.
func (l *Link) pass(c *connection) bool {
	received := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open[c] {
		left := time.Until(received.Add(l.state.Delay))
		switch {
		case l.state.Hold:
			l.changed.Wait()
		case left > 0:
			due := time.AfterFunc(left, l.wake)
			l.changed.Wait()
			due.Stop()
		default:
			return true
		}
	}
	return false
}

// wake notifies the callers of pass. wake locks l.mu, so that the notification is not sent before pass waits.
func (l *Link) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed.Broadcast()
}

func (l *Link) end(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reset(c)
}

// reset resets both connections. Bytes that are not sent yet are lost. The caller has locked l.mu.
func (l *Link) reset(c *connection) {
	delete(l.open, c)
	l.changed.Broadcast()
	for _, end := range []net.Conn{c.client, c.server} {
		if secured, ok := end.(*tls.Conn); ok {
			end = secured.NetConn()
		}
		if tcp, ok := end.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
	}
}
