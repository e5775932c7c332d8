// The proxy counts the statements that clients send to Postgres, separately for each database role.
// It also counts BEGIN, COMMIT and LISTEN. It needs no extension of the server and does not change
// the traffic. Connections must not use TLS.

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

// Counts maps each statement to the number of its executions.
type Counts map[string]int

// Sum returns the number of all executions.
func (c Counts) Sum() (n int) {
	for _, times := range c {
		n += times
	}
	return n
}

// Less subtracts an earlier reading, so the result contains only the executions since then.
func (c Counts) Less(earlier Counts) Counts {
	since := Counts{}
	for statement, times := range c {
		if n := times - earlier[statement]; n != 0 {
			since[statement] = n
		}
	}
	return since
}

// Traffic is the traffic between clients and the server.
type Traffic struct {
	// Trips is the number of times that a client waited for a response. A pipeline of statements
	// counts as one.
	Trips int64
	// Sent and Received count bytes in the direction that the client sees, without TCP overhead.
	Sent, Received int64
}

// Less subtracts an earlier reading, so the result contains only the traffic since then.
func (t Traffic) Less(earlier Traffic) Traffic {
	return Traffic{t.Trips - earlier.Trips, t.Sent - earlier.Sent, t.Received - earlier.Received}
}

// Proxy is a listening proxy.
type Proxy struct {
	// Addr is the address for clients.
	Addr string

	target string
	ln     net.Listener
	mu     sync.Mutex
	roles  map[string]Counts
	passed map[string]Traffic
}

// Listen forwards a free port of loopback to the server at target.
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

// Close stops accepting connections. Open connections continue.
func (p *Proxy) Close() { _ = p.ln.Close() }

// Of returns the counts of all roles whose names begin with the prefix, added up.
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

// Passed returns the traffic of all roles whose names begin with the prefix, added up.
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
	// The error is not reported, because the client or the server reports the closed connection.
	_ = s.run()
}

type session struct {
	proxy *Proxy
	in    *bufio.Reader
	out   *bufio.Writer
	role  atomic.Value
	// statements maps the names of prepared statements, and portals the names of bound portals, to
	// their SQL.
	statements, portals map[string]string
}

func (s *session) who() string {
	role, _ := s.role.Load().(string)
	return role
}

// protocol is the code of protocol version 3.0 in the startup message.
const protocol = 196608

func (s *session) run() error {
	for s.who() == "" {
		body, err := s.forward(0)
		if err != nil {
			return err
		}
		if len(body) < 4 || binary.BigEndian.Uint32(body) != protocol {
			continue // a message before the startup: a TLS request or a cancel request
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
		s.proxy.pass(s.who(), Traffic{Trips: roundTrips(kind), Sent: int64(5 + len(body))})
		s.read(kind, body)
	}
}

// roundTrips returns 1 if the client waits for the response to the message, otherwise 0. The client
// waits after a simple query and at the end of a pipeline.
func roundTrips(kind byte) int64 {
	if kind == 'Q' || kind == 'S' {
		return 1
	}
	return 0
}

// forward forwards one message and returns its body. The startup message has no kind byte, so its
// kind is 0.
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
		return body, nil // flush later, because more messages are buffered
	}
	return body, s.out.Flush()
}

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
	case 'P': // fields: statement name, SQL
		s.statements[string(first)] = string(second)
	case 'B': // fields: portal name, statement name
		s.portals[string(first)] = s.statements[string(second)]
	case 'E': // field: portal name
		s.proxy.add(s.who(), s.portals[string(first)])
	}
}
