// The receiver of webhooks from the dispatcher and from the baseline loop. It is a separate
// process, so that its CPU time can be measured. It responds without delay and records the arrival
// times.

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

// Arrival is one received POST.
type Arrival struct {
	Event, Delivery uuid.UUID
	// Attempt is the number of the attempt, starting at 1.
	Attempt int
	// At is the time when the receiver read the first byte of the request, in nanoseconds of the
	// machine's clock.
	At int64
}

// Count is the number of requests that a lane has received, and the number of requests without a
// response.
type Count struct{ Arrived, Open int }

// The first part of a path, /<way>/<lane>/…, selects the behavior of the receiver.
const (
	// Take responds with 200 immediately.
	Take = "take"
	// Refuse responds with 503 to a first attempt and with 200 to all others.
	Refuse = "refuse"
	// Hang reads the request and never responds.
	Hang = "hang"
)

// lane contains the received requests with the same second segment of the URL path.
type lane struct {
	mu       sync.Mutex
	arrivals []Arrival
	open     atomic.Int64
}

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

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := firstByte(req.Context())
	way, rest, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	name, _, _ := strings.Cut(rest, "/")
	l := r.lane(name)
	l.open.Add(1)
	defer l.open.Add(-1)
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return // the sender has disconnected
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

// conn records when the first byte after the last response was read. This byte is the first byte of
// the next request.
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

type receiverAddresses struct {
	Control string
	URLs    []string
}

// Run is the main function of the receiver process. args contains the file of the authority's
// certificate, the file of its key, and the number of loopback addresses. The process prints its
// addresses. It ends when its standard input is closed.
func Run(args []string) error {
	cert, hosts, err := certificate(args)
	if err != nil {
		return err
	}
	r := &receiver{lanes: map[string]*lane{}}
	// senders can be killed during the TLS handshake, which is no error here
	quiet := log.New(io.Discard, "", 0)
	server := &http.Server{
		Handler: r, TLSConfig: cert, ErrorLog: quiet, ReadHeaderTimeout: time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, underneath(c))
		},
	}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	var printed receiverAddresses
	for _, host := range hosts {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil && len(printed.URLs) > 0 {
			break // some systems have only one loopback address
		}
		if err != nil {
			return err
		}
		printed.URLs = append(printed.URLs, "https://"+ln.Addr().String())
		go func() { _ = server.ServeTLS(noting{ln}, "", "") }()
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	printed.Control = "http://" + control.Addr().String()
	asked := &http.Server{Handler: r.control(), ErrorLog: quiet, ReadHeaderTimeout: time.Minute}
	go func() { _ = asked.Serve(control) }()
	if err := json.NewEncoder(os.Stdout).Encode(printed); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func underneath(c net.Conn) *conn {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = wrapped.NetConn()
	}
	ours, _ := c.(*conn)
	return ours
}
