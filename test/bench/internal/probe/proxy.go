// Package counting stands between clients and a Postgres and counts what they ask, by role: every statement as it was sent, those of
// transactions and of LISTEN among them. It needs no extension of the server and changes nothing that passes. Connections must be without TLS.

package probe

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// Counts is how often each statement was sent.
type Counts map[string]int

// Sum is the number of all.
func (c Counts) Sum() (n int) {
	for _, times := range c {
		n += times
	}
	return n
}

// Less is what came since an earlier count.
func (c Counts) Less(before Counts) Counts {
	since := Counts{}
	for statement, times := range c {
		if n := times - before[statement]; n != 0 {
			since[statement] = n
		}
	}
	return since
}

// Traffic is what passed between clients and the server.
type Traffic struct {
	// Trips are the times that clients waited for an answer: a pipeline of statements is one.
	Trips int64
	// Sent and Received are bytes, as the clients see it, without TCP's own.
	Sent, Received int64
}

// Less is what passed since.
func (t Traffic) Less(before Traffic) Traffic {
	return Traffic{t.Trips - before.Trips, t.Sent - before.Sent, t.Received - before.Received}
}

// Proxy is one that listens.
type Proxy struct {
	// Addr is where clients connect.
	Addr string

	target string
	ln     net.Listener
	mu     sync.Mutex
	roles  map[string]Counts
	passed map[string]Traffic
}

// Listen forwards a free loopback port to the server at target.
func Listen(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Addr: ln.Addr().String(), target: target, ln: ln, roles: map[string]Counts{}, passed: map[string]Traffic{}}
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p, nil
}

// Close takes no more connections; open ones end with their ends.
func (p *Proxy) Close() { _ = p.ln.Close() }

// Of are the counts of all roles whose name begins so.
func (p *Proxy) Of(prefix string) Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := Counts{}
	for role, counts := range p.roles {
		if strings.HasPrefix(role, prefix) {
			for statement, times := range counts {
				all[statement] += times
			}
		}
	}
	return maps.Clone(all)
}

func (p *Proxy) add(role, statement string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.roles[role] == nil {
		p.roles[role] = Counts{}
	}
	p.roles[role][strings.Join(strings.Fields(statement), " ")]++
}

// Passed is the traffic of all roles whose name begins so.
func (p *Proxy) Passed(prefix string) (all Traffic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for role, t := range p.passed {
		if strings.HasPrefix(role, prefix) {
			all = Traffic{all.Trips + t.Trips, all.Sent + t.Sent, all.Received + t.Received}
		}
	}
	return all
}

func (p *Proxy) pass(role string, more Traffic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.passed[role]
	p.passed[role] = Traffic{t.Trips + more.Trips, t.Sent + more.Sent, t.Received + more.Received}
}

// received counts what the server answers.
type received struct {
	to    io.Writer
	proxy *Proxy
	role  func() string
}

func (r received) Write(answer []byte) (int, error) {
	r.proxy.pass(r.role(), Traffic{Received: int64(len(answer))})
	return r.to.Write(answer)
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	s := session{proxy: p, in: bufio.NewReader(client), out: bufio.NewWriter(server), statements: map[string]string{}, portals: map[string]string{}}
	go func() {
		_, _ = io.Copy(received{client, p, s.who}, server)
		_ = client.Close()
	}()
	_ = s.run() // how a connection ends is its ends' business
}

// session reads what one client sends.
type session struct {
	proxy *Proxy
	in    *bufio.Reader
	out   *bufio.Writer
	role  atomic.Value
	// statements are the prepared ones by name, portals the bound ones.
	statements, portals map[string]string
}

func (s *session) who() string {
	role, _ := s.role.Load().(string)
	return role
}

// protocol is version 3.0 of the frontend's startup message.
const protocol = 196608

func (s *session) run() error {
	for s.who() == "" {
		body, err := s.forward(0)
		if err != nil {
			return err
		}
		if len(body) < 4 || binary.BigEndian.Uint32(body) != protocol {
			continue // a question before the startup, as for TLS, or a cancel
		}
		fields := bytes.Split(body[4:], []byte{0})
		for i := 0; i+1 < len(fields); i += 2 {
			if string(fields[i]) == "user" {
				s.role.Store(string(fields[i+1]))
			}
		}
	}
	for {
		kind, err := s.in.ReadByte()
		if err != nil {
			return err
		}
		body, err := s.forward(kind)
		if err != nil {
			return err
		}
		s.proxy.pass(s.who(), Traffic{Trips: trips(kind), Sent: int64(5 + len(body))})
		s.read(kind, body)
	}
}

// trips is one for a message behind which a client waits: a simple query, or the end of a pipeline.
func trips(kind byte) int64 {
	if kind == 'Q' || kind == 'S' {
		return 1
	}
	return 0
}

// forward hands one message on and answers what stood in it. Kind is zero for those that have none.
func (s *session) forward(kind byte) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(s.in, length[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size < 4 {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(s.in, body); err != nil {
		return nil, err
	}
	if kind != 0 {
		_ = s.out.WriteByte(kind)
	}
	_, _ = s.out.Write(length[:])
	if _, err := s.out.Write(body); err != nil {
		return nil, err
	}
	if s.in.Buffered() > 0 {
		return body, nil // more is on its way
	}
	return body, s.out.Flush()
}

// read counts what the message asks for.
func (s *session) read(kind byte, body []byte) {
	first, rest, _ := bytes.Cut(body, []byte{0})
	second, _, _ := bytes.Cut(rest, []byte{0})
	switch kind {
	case 'Q':
		for statement := range strings.SplitSeq(string(first), ";") {
			if strings.TrimSpace(statement) != "" {
				s.proxy.add(s.who(), statement)
			}
		}
	case 'P': // name, statement
		s.statements[string(first)] = string(second)
	case 'B': // portal, name
		s.portals[string(first)] = s.statements[string(second)]
	case 'E': // portal
		s.proxy.add(s.who(), s.portals[string(first)])
	}
}
