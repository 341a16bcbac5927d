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

const (
	chunkBytes = 32 << 10
	// inFlight limits the waiting chunks in one direction of a connection. If the limit is reached, the sender
	// is blocked.
	inFlight = 256
)

// State describes how a link treats bytes. With the zero State, the link forwards bytes without
// delay.
type State struct {
	// Cut resets all connections, including new connections.
	Cut bool
	// Hold stops the forwarding of bytes in both directions. Connections stay open.
	Hold bool
	// Delay is the delay of each byte, in both directions.
	Delay time.Duration
}

// Link forwards connections to one address.
type Link struct {
	listener net.Listener
	done     sync.WaitGroup

	mu       sync.Mutex
	upstream string
	state    State
	changed  chan struct{}
	open     map[*connection]bool
}

// connection contains the connection from the client and the connection to the server.
type connection struct {
	client, server net.Conn
	closed         chan struct{}
	once           sync.Once
}

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
	l := &Link{listener: listener, upstream: upstream, changed: make(chan struct{}), open: map[*connection]bool{}}
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
	l.wake()
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

func (l *Link) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) cut() {
	for c := range l.open {
		c.reset()
	}
	clear(l.open)
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
	l.mu.Lock()
	upstream, cut := l.upstream, l.state.Cut
	l.mu.Unlock()
	c := &connection{client: client, closed: make(chan struct{})}
	if cut {
		c.reset()
		return
	}
	server, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(context.Background(), "tcp", upstream)
	if err != nil {
		c.reset()
		return
	}
	c.server = server
	l.mu.Lock()
	if l.state.Cut {
		l.mu.Unlock()
		c.reset()
		return
	}
	l.open[c] = true
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.forward(c, client, server) })
	both.Go(func() { l.forward(c, server, client) })
	both.Wait()
	l.mu.Lock()
	delete(l.open, c)
	l.mu.Unlock()
}

// chunk contains bytes and the time at which the bytes were received.
type chunk struct {
	bytes []byte
	sent  time.Time
}

// forward copies bytes in one direction. When one side closes the connection, both directions are closed,
// because no client of a link uses a half-closed connection.
func (l *Link) forward(c *connection, from io.Reader, to io.Writer) {
	chunks := make(chan chunk, inFlight)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(chunks)
		for {
			buffer := make([]byte, chunkBytes)
			n, err := from.Read(buffer)
			if n > 0 {
				select {
				case chunks <- chunk{buffer[:n], time.Now()}:
				case <-c.closed:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for next := range chunks {
		if !l.await(c, next.sent) {
			break
		}
		if _, err := to.Write(next.bytes); err != nil {
			break
		}
	}
	c.reset()
	reading.Wait()
}

// await waits until a chunk that was received at sent may be forwarded. If the connection ends first, await
// returns false.
func (l *Link) await(c *connection, sent time.Time) bool {
	for {
		l.mu.Lock()
		state, changed := l.state, l.changed
		l.mu.Unlock()
		var due <-chan time.Time
		if !state.Hold {
			left := time.Until(sent.Add(state.Delay))
			if left <= 0 {
				return true
			}
			due = time.After(left)
		}
		select {
		case <-due:
		case <-changed:
		case <-c.closed:
			return false
		}
	}
}

// reset resets both connections. Bytes that are not sent yet are lost.
func (c *connection) reset() {
	c.once.Do(func() {
		close(c.closed)
		for _, end := range []net.Conn{c.client, c.server} {
			if secured, ok := end.(*tls.Conn); ok {
				end = secured.NetConn()
			}
			if tcp, ok := end.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
				_ = tcp.Close()
			}
		}
	})
}
