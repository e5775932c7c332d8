// Package catching is the receiver that webhooks and the bare loop are sent to: a process of its own, so that its CPU is told apart, which
// answers as fast as net/http can and remembers when what arrived.

package main

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Arrival is one POST as the receiver saw it.
type Arrival struct {
	Event, Delivery uuid.UUID
	// Attempt counts from 1.
	Attempt int
	// At is when the first byte of the request was read, in nanoseconds of the machine's clock.
	At int64
}

// Count is how much came to a lane so far, and how many requests are open there now.
type Count struct{ Arrived, Open int }

// What the first part of a path makes the receiver do: /<way>/<lane>/…
const (
	// Take answers 200 at once.
	Take = "take"
	// Refuse answers 503 to a first attempt and 200 to every other.
	Refuse = "refuse"
	// Hang reads the request and never answers.
	Hang = "hang"
)

// lane is what was sent to one name.
type lane struct {
	mu       sync.Mutex
	arrivals []Arrival
	open     atomic.Int64
}

// receiver keeps what arrives, by lane.
type receiver struct {
	mu    sync.RWMutex
	lanes map[string]*lane
}

func (r *receiver) lane(name string) *lane {
	r.mu.RLock()
	l := r.lanes[name]
	r.mu.RUnlock()
	if l != nil {
		return l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l = r.lanes[name]; l == nil {
		l = &lane{}
		r.lanes[name] = l
	}
	return l
}

// ServeHTTP takes one POST.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := firstByte(req.Context())
	way, rest, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	name, _, _ := strings.Cut(rest, "/")
	l := r.lane(name)
	l.open.Add(1)
	defer l.open.Add(-1)
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return // the sender died
	}
	a := Arrival{At: at}
	a.Event, _ = uuid.Parse(req.Header.Get("X-Service-Event-Id"))
	a.Delivery, _ = uuid.Parse(req.Header.Get("X-Service-Delivery-Id"))
	a.Attempt, _ = strconv.Atoi(req.Header.Get("X-Service-Delivery-Attempt"))
	l.mu.Lock()
	l.arrivals = append(l.arrivals, a)
	l.mu.Unlock()
	switch {
	case way == Hang:
		<-req.Context().Done()
	case way == Refuse && a.Attempt <= 1:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// control answers the bench: how much came, and what.
func (r *receiver) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /count/{lane}", func(w http.ResponseWriter, req *http.Request) {
		l := r.lane(req.PathValue("lane"))
		l.mu.Lock()
		count := Count{Arrived: len(l.arrivals), Open: int(l.open.Load())}
		l.mu.Unlock()
		_ = json.NewEncoder(w).Encode(count)
	})
	mux.HandleFunc("GET /arrivals/{lane}", func(w http.ResponseWriter, req *http.Request) {
		l := r.lane(req.PathValue("lane"))
		l.mu.Lock()
		arrivals := l.arrivals[:len(l.arrivals):len(l.arrivals)]
		l.mu.Unlock()
		_ = gob.NewEncoder(w).Encode(arrivals)
	})
	return mux
}

// conn notes when the first byte came after the last answer went: the first byte of the next request.
type conn struct {
	net.Conn
	answered atomic.Bool
	first    atomic.Int64
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.answered.Swap(false) {
		c.first.Store(time.Now().UnixNano())
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	c.answered.Store(true)
	return c.Conn.Write(p)
}

type noting struct{ net.Listener }

func (l noting) Accept() (net.Conn, error) {
	plain, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: plain}, nil
}

type connKey struct{}

func firstByte(ctx context.Context) int64 {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		return c.first.Load()
	}
	return time.Now().UnixNano()
}

// receiverAddresses is what a receiver tells the bench when it listens.
type receiverAddresses struct {
	Control string
	URLs    []string
}

// Run is the receiver's process: args are the files of the authority and of its key, and how many loopback addresses to listen on, as far
// as the system has them. It tells its addresses in one line and ends when its standard input does.
func Run(args []string) error {
	cert, hosts, err := certificate(args)
	if err != nil {
		return err
	}
	r := &receiver{lanes: map[string]*lane{}}
	quiet := log.New(io.Discard, "", 0) // senders are killed in mid-handshake
	server := &http.Server{
		Handler: r, TLSConfig: cert, ErrorLog: quiet, ReadHeaderTimeout: time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, underneath(c))
		},
	}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	var told receiverAddresses
	for _, host := range hosts {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil && len(told.URLs) > 0 {
			break // not every system has more than one loopback address
		}
		if err != nil {
			return err
		}
		told.URLs = append(told.URLs, "https://"+ln.Addr().String())
		go func() { _ = server.ServeTLS(noting{ln}, "", "") }()
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	told.Control = "http://" + control.Addr().String()
	asked := &http.Server{Handler: r.control(), ErrorLog: quiet, ReadHeaderTimeout: time.Minute}
	go func() { _ = asked.Serve(control) }()
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// underneath is our conn below the TLS.
func underneath(c net.Conn) *conn {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = wrapped.NetConn()
	}
	ours, _ := c.(*conn)
	return ours
}
