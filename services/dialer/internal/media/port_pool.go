package media

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Rest is how long a port stays bound after its call. It is long enough for a far end that did not
// receive the end of the call to stop sending.
const Rest = 30 * time.Second

// ErrNoPort means that every port of the range is in use, still bound after a call, or taken by
// another program.
var ErrNoPort = errors.New("no free RTP port")

// PortPool assigns one UDP port to each stream, from the even ports of a range on one address. A
// returned port stays bound for the rest time. Otherwise another call could receive packets that
// still arrive for the old call.
type PortPool struct {
	bind       netip.Addr
	first, all int
	rest       time.Duration

	mu      sync.Mutex
	next    int
	resting map[*net.UDPConn]*time.Timer
	closed  bool
}

// NewPortPool returns a pool of the even ports from low to high. If low is 0, the system chooses
// the ports.
func NewPortPool(bind netip.Addr, low, high uint16, rest time.Duration) (*PortPool, error) {
	first := int(low) + int(low)%2
	p := &PortPool{
		bind:    bind,
		first:   first,
		all:     (int(high)-first)/2 + 1,
		rest:    rest,
		resting: map[*net.UDPConn]*time.Timer{},
	}
	if low != 0 && (p.all < 1 || int(high) < first) {
		return nil, fmt.Errorf("no even port from %d to %d", low, high)
	}
	// The first port is random, so that a restarted process probably does not first use the ports that
	// the previous process used last.
	p.next = rand.IntN(max(p.all, 1))
	return p, nil
}

// Take binds a port. It tries each port of the range once.
func (p *PortPool) Take() (*net.UDPConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	if p.first == 0 {
		return net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.bind, 0)))
	}
	for range p.all {
		number := uint16(p.first + 2*p.next)
		p.next = (p.next + 1) % p.all
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.bind, number)))
		if err != nil {
			continue // in use, still bound after a call, or taken by another program
		}
		return conn, nil
	}
	return nil, ErrNoPort
}

// Give returns a port to the pool. The port stays bound for the pool's rest time, but nothing is
// read from it.
func (p *PortPool) Give(conn *net.UDPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadBuffer(0) // nothing reads the port, so the smallest buffer is enough
	p.resting[conn] = time.AfterFunc(p.rest, func() { p.free(conn) })
}

func (p *PortPool) free(conn *net.UDPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, rests := p.resting[conn]; rests {
		p.drop(conn)
	}
}

func (p *PortPool) drop(conn *net.UDPConn) {
	delete(p.resting, conn)
	_ = conn.Close()
}

// Resting returns the number of returned ports that are still bound.
func (p *PortPool) Resting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.resting)
}

// Close closes the returned ports that are still bound. A port in use is closed when it is
// returned.
func (p *PortPool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for conn, timer := range p.resting {
		timer.Stop()
		p.drop(conn)
	}
}
