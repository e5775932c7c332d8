package rig

import (
	"io"
	"net"
	"sync"
)

// Proxy forwards TCP to one address and can be cut: while cut it refuses and has closed everything.
type Proxy struct {
	Addr string

	target string
	mu     sync.Mutex
	ln     net.Listener
	open   map[net.Conn]bool
	wg     sync.WaitGroup
}

// NewProxy listens on a free loopback port.
func NewProxy(target string) (*Proxy, error) {
	p := &Proxy{target: target, open: map[net.Conn]bool{}, Addr: "127.0.0.1:0"}
	return p, p.Mend()
}

// Mend listens (again) on the same port.
func (p *Proxy) Mend() error {
	ln, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.ln, p.Addr = ln, ln.Addr().String()
	p.mu.Unlock()
	p.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(conn) })
		}
	})
	return nil
}

// Cut closes the port and every connection, and returns when all are closed.
func (p *Proxy) Cut() {
	p.mu.Lock()
	_ = p.ln.Close()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) serve(in net.Conn) {
	out, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = in.Close()
		return
	}
	p.mu.Lock()
	p.open[in], p.open[out] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = in.Close()
			_ = out.Close()
		})
	}
	both.Wait()
	p.mu.Lock()
	delete(p.open, in)
	delete(p.open, out)
	p.mu.Unlock()
}
