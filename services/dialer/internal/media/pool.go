// Package port gives each stream a UDP port of its own. Even ports of a range, as RTP has it; a port that was given back stays bound for a while, so
// that what still comes for the call that is over meets nobody new.

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

// Rest is how long a port stays bound after its call: longer than a far end goes on sending that missed the end.
const Rest = 30 * time.Second

// ErrNone: every port of the range is in use, resting, or somebody else's.
var ErrNoPort = errors.New("no free RTP port")

// PortPool is one range on one address.
type PortPool struct {
	bind       netip.Addr
	first, all int
	rest       time.Duration

	mu      sync.Mutex
	next    int
	resting map[*net.UDPConn]*time.Timer
	closed  bool
}

// NewPortPool takes the even ports of [low, high] on an address. low 0 takes whatever the system gives.
func NewPortPool(bind netip.Addr, low, high uint16, rest time.Duration) (*PortPool, error) {
	first := int(low) + int(low)%2
	p := &PortPool{bind: bind, first: first, all: (int(high)-first)/2 + 1, rest: rest, resting: map[*net.UDPConn]*time.Timer{}}
	if low != 0 && (p.all < 1 || int(high) < first) {
		return nil, fmt.Errorf("no even port from %d to %d", low, high)
	}
	p.next = rand.IntN(max(p.all, 1)) // a process that starts anew does not meet the late packets of its predecessor
	return p, nil
}

// Take binds a port. It tries each of the range once.
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
			continue // in use, resting, or another program's
		}
		return conn, nil
	}
	return nil, ErrNoPort
}

// Give ends a call's use of its port. It stays bound and unread for the pool's rest.
func (p *PortPool) Give(conn *net.UDPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadBuffer(0) // the system's least: nobody reads any more
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

// Resting is how many ports rest.
func (p *PortPool) Resting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.resting)
}

// Close frees what rests. Ports that are in use are freed as they are given back.
func (p *PortPool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for conn, timer := range p.resting {
		timer.Stop()
		p.drop(conn)
	}
}
