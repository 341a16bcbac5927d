package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// All ports are below the ephemeral range. Otherwise, an outgoing connection could use the port
// of a stopped process, and the restart of the process would fail.
const (
	firstPort = 15000
	blockSize = 128
	blocks    = 128
)

var errNoPort = errors.New("no free port left")

// ports assigns the ports of one block. A listener on the first port claims the block, so that clusters on one
// machine never share a block.
type ports struct {
	claim net.Listener

	mu   sync.Mutex
	next int
	end  int
}

func claimPorts() (*ports, error) {
	for _, block := range rand.Perm(blocks) {
		first := firstPort + block*blockSize
		if l, err := listen(first); err == nil {
			return &ports{claim: l, next: first + 1, end: first + blockSize}, nil
		}
	}
	return nil, fmt.Errorf("claim ports %d-%d on 127.0.0.1: %w", firstPort, firstPort+blocks*blockSize-1, errNoPort)
}

// take returns a free port that was not returned before.
func (p *ports) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.next < p.end {
		port := p.next
		p.next++
		if l, err := listen(port); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("take a port of the block that ends at %d: %w", p.end-1, errNoPort)
}

func (p *ports) takeEach(targets ...*int) error {
	for _, target := range targets {
		port, err := p.take()
		if err != nil {
			return err
		}
		*target = port
	}
	return nil
}

func (p *ports) release() { _ = p.claim.Close() }

func listen(port int) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(context.Background(), "tcp", loopback(port)) // Listen does not block.
}

// loopback returns the address of a port on the loopback interface.
func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
