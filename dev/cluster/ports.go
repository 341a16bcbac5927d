package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// All ports are below the ephemeral range, so that no outgoing connection uses the port of a stopped process
// before the process restarts.
const (
	firstPort = 15000
	blockSize = 128 // A cluster uses fewer ports.
	blocks    = 128
)

// ports assigns the ports of one block. A listener on the first port claims the block, so that clusters on one
// machine never share a block.
type ports struct {
	claim net.Listener

	mu   sync.Mutex
	next int
	uses map[string]int
}

// claimPorts claims a block in which all ports are free.
func claimPorts() (*ports, error) {
	for _, block := range rand.Perm(blocks) {
		first := firstPort + block*blockSize
		claim, err := listen(first)
		if err != nil {
			continue
		}
		if allFree(first+1, first+blockSize) {
			return &ports{claim: claim, next: first + 1, uses: map[string]int{}}, nil
		}
		_ = claim.Close()
	}
	return nil, fmt.Errorf("claim ports %d-%d on 127.0.0.1: in each block, a port is in use", firstPort, firstPort+blocks*blockSize-1)
}

func allFree(port, end int) bool {
	for ; port < end; port++ {
		l, err := listen(port)
		if err != nil || l.Close() != nil {
			return false
		}
	}
	return true
}

// of returns the port of a use, such as the name of a process. A restarted process keeps its port.
func (p *ports) of(use string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.uses[use] == 0 {
		if p.next%blockSize == firstPort%blockSize {
			panic("the cluster has no free port for " + use)
		}
		p.uses[use] = p.next
		p.next++
	}
	return p.uses[use]
}

func (p *ports) release() { _ = p.claim.Close() }

func listen(port int) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(context.Background(), "tcp", loopback(port)) // Listen does not block.
}

// at returns the address of a use on the loopback interface.
func (c *Cluster) at(use string) string { return loopback(c.ports.of(use)) }

// loopback returns the address of a port on the loopback interface.
func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
