// The balancer forwards TCP connections to the ready replicas of a service, as a Kubernetes Service
// does.

package stack

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// probeInterval is the time between two probes of a replica. It must be shorter than
	// DRAIN_DELAY, so that a rolling restart interrupts no request.
	probeInterval = 250 * time.Millisecond
	probeTimeout  = time.Second
	dialTimeout   = 2 * time.Second
)

// Replica is one process behind a balancer.
type Replica struct {
	// Addr is the address at which the replica accepts connections.
	Addr string
	// Probe is a URL that responds with 200 while the replica is ready.
	Probe string
}

// Balancer forwards each connection to the next ready replica.
type Balancer struct {
	listener net.Listener
	replicas []*replica
	next     atomic.Uint64
}

type replica struct {
	Replica
	ready atomic.Bool
}

// Listen opens addr for the replicas. The caller must call Run.
func Listen(ctx context.Context, addr string, replicas []Replica) (*Balancer, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	b := &Balancer{listener: listener}
	for _, r := range replicas {
		b.replicas = append(b.replicas, &replica{Replica: r})
	}
	return b, nil
}

// Run accepts connections until ctx ends, and then closes all of them.
func (b *Balancer) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = b.listener.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	for _, r := range b.replicas {
		all.Go(func() { r.probe(ctx) })
	}
	for {
		conn, err := b.listener.Accept()
		if ctx.Err() != nil {
			return
		}
		if err != nil { // Accept fails, for example, if the process has too many open files
			time.Sleep(10 * time.Millisecond)
			continue
		}
		all.Go(func() { b.forward(ctx, conn) })
	}
}

func (r *replica) probe(ctx context.Context) {
	client := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		r.ready.Store(isReady(ctx, client, r.Probe))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func isReady(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (b *Balancer) forward(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	upstream := b.dial(ctx, client.RemoteAddr())
	if upstream == nil {
		return
	}
	defer func() { _ = upstream.Close() }()
	defer context.AfterFunc(ctx, func() { _ = client.Close(); _ = upstream.Close() })()
	var both sync.WaitGroup
	both.Go(func() { copyHalf(upstream, client) })
	both.Go(func() { copyHalf(client, upstream) })
	both.Wait()
}

// copyHalf copies src to dst until EOF and then closes dst for writing. After an error, it closes
// both connections.
func copyHalf(dst, src net.Conn) {
	_, err := io.Copy(dst, src)
	if half, ok := dst.(*net.TCPConn); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_ = dst.Close()
	_ = src.Close()
}

// dial connects to the next ready replica. If no ready replica accepts the connection, dial tries
// the other replicas.
func (b *Balancer) dial(ctx context.Context, client net.Addr) net.Conn {
	dialer := net.Dialer{Timeout: dialTimeout}
	if peer, ok := client.(*net.TCPAddr); ok && peer.IP.IsLoopback() {
		// The gateway limits requests by client address, so keep the address of the client.
		dialer.LocalAddr = &net.TCPAddr{IP: peer.IP}
	}
	first := int(b.next.Add(1) % uint64(len(b.replicas)))
	for _, wantReady := range []bool{true, false} {
		for i := range b.replicas {
			r := b.replicas[(first+i)%len(b.replicas)]
			if r.ready.Load() != wantReady {
				continue
			}
			conn, err := dialer.DialContext(ctx, "tcp", r.Addr)
			if err == nil {
				return conn
			}
		}
	}
	return nil
}
