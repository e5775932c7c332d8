// Package transport owns the way SIP messages go: sockets, transports and transactions (emiago/sipgo), who may be heard at all, and digest authentication. It
// knows neither dialogs nor calls; what comes in is handed to two functions of its user.
package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/siptrace"
)

// Transports.
const (
	UDP = "UDP"
	TCP = "TCP"
	TLS = "TLS"
)

// dialTimeout bounds setting up one TCP or TLS connection.
const dialTimeout = 3 * time.Second

// Config of a line. An empty address is not listened at; port 0 is any free one.
type Config struct {
	UDP, TCP, TLS string
	// Advertised is the host that peers reach us at; empty: the one of the first listener.
	Advertised string
	// Certificate is shown to peers that connect to us over TLS, Roots are whom we trust when we connect; nil: the system's. ServerName is whose certificate a peer
	// must show then, whatever address it has; empty: its address's.
	Certificate *tls.Certificate
	Roots       *x509.CertPool
	ServerName  string
	// Admit says who may begin something with us. From strangers only what belongs to a call of ours is heard (Knows, by Call-ID); the rest is dropped before it is
	// parsed. Both are asked for every message and must be quick.
	Admit   func(netip.Addr) bool
	HasCall func(callID string) bool
	// Stranger is called for each INVITE, and each connection, that was dropped because Admit refused its address, unless
	// it is nil. It must be quick, and must expect hostile text.
	Rejected func(Rejected)
	// Ports are those of another line that listens for this one, which only connects.
	Ports map[string]int
	// Request takes what peers ask, outside and inside of dialogs, each in a goroutine of its own. Response sees every response, also those that a transaction
	// waits for, in the order in which they came: transactions give theirs away in any. It must not block, nor change them.
	Request  func(*sip.Request, *sip.ServerTx)
	Response func(*sip.Response)
	// Trace records messages while Tracing returns true; both nil: nothing is recorded. It may use the message's data
	// only until it returns.
	Trace   func(siptrace.Message)
	Tracing func() bool
	Log     *slog.Logger
	// Names finds addresses; nil: the system's resolver.
	Names Names
}

// Transport is open until Close.
type Transport struct {
	cfg          Config
	transport    *sip.TransportLayer
	transactions *sip.TransactionLayer
	ports        map[string]int
	udp          sip.Addr
	names        Names
	closers      []func() error
	serving      sync.WaitGroup

	// going is held by whoever sends: what left after Close would open a socket of its own at our address.
	sending sync.RWMutex
	closed  bool

	mu      sync.Mutex
	pending map[string]int // Call-IDs of what we asked and wait for
}

// largeDatagrams lets a datagram be as large as UDP allows: who wants it otherwise has us use TCP (Trunk.LargeOverTCP). sipgo has the limit in a variable of
// the package, and a logger, too, to which it tells how it counts connections.
var largeDatagrams = sync.OnceFunc(func() {
	sip.UDPMTUSize = 65_000
	sip.SetDefaultLogger(slog.New(slog.DiscardHandler))
})

// Open listens. What it cannot listen at is an error, and nothing stays open.
func Open(cfg Config) (*Transport, error) {
	largeDatagrams()
	if cfg.Names == nil {
		cfg.Names = net.DefaultResolver
	}
	if cfg.Ports == nil {
		cfg.Ports = map[string]int{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	l := &Transport{cfg: cfg, ports: maps.Clone(cfg.Ports), pending: map[string]int{}, names: cfg.Names}
	// sipgo logs what strangers send as errors, contents included: it is for debugging only.
	quiet := slog.New(debugOnly{cfg.Log.Handler()})
	l.transport = sip.NewTransportLayer(net.DefaultResolver, sip.NewParser(), &tls.Config{RootCAs: cfg.Roots, ServerName: cfg.ServerName, MinVersion: tls.VersionTLS12},
		sip.WithTransportLayerLogger(quiet), sip.WithTransportLayerReadFilter(l.filter),
		sip.WithTransportLayerTransports(sip.TransportsConfig{
			TCP: &sip.TransportTCP{DialerCreate: dialer, WriteTimeout: dialTimeout},
			TLS: &sip.TransportTLS{TransportTCP: &sip.TransportTCP{DialerCreate: dialer, WriteTimeout: dialTimeout}},
		}))
	l.transport.OnMessage(func(msg sip.Message) { // before the transactions, and in the goroutine that reads
		l.traceReceived(msg)
		if res, is := msg.(*sip.Response); is && cfg.Response != nil {
			cfg.Response(res)
		}
	})
	l.transactions = sip.NewTransactionLayer(l.transport, sip.WithTransactionLayerLogger(quiet),
		sip.WithTransactionLayerUnhandledResponseHandler(func(*sip.Response) {}))
	l.transactions.OnRequest(cfg.Request)
	if err := l.listen(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func dialer(local net.Addr) net.Dialer {
	return net.Dialer{Timeout: dialTimeout, LocalAddr: local, KeepAlive: 15 * time.Second}
}

func (l *Transport) listen() error {
	if l.cfg.UDP != "" {
		conn, err := net.ListenPacket(family("udp", l.cfg.UDP), l.cfg.UDP)
		if err != nil {
			return fmt.Errorf("listen at udp %s: %w", l.cfg.UDP, err)
		}
		if udp, is := conn.(*net.UDPConn); is {
			_ = udp.SetReadBuffer(receiveBufferBytes) // as much of it as the system allows
		}
		addr, _ := conn.LocalAddr().(*net.UDPAddr)
		l.udp = sip.Addr{IP: addr.IP, Port: addr.Port}
		l.opened(UDP, addr.IP, addr.Port, conn.Close, func() error {
			return l.transport.ServeUDP(&datagramConn{PacketConn: conn, line: l})
		})
	}
	for _, stream := range []struct {
		name, addr string
		serve      func(net.Listener) error
	}{{TCP, l.cfg.TCP, l.transport.ServeTCP}, {TLS, l.cfg.TLS, l.transport.ServeTLS}} {
		if stream.addr == "" {
			continue
		}
		listener, err := net.Listen(family("tcp", stream.addr), stream.addr)
		if err != nil {
			return fmt.Errorf("listen at %s %s: %w", stream.name, stream.addr, err)
		}
		addr, _ := listener.Addr().(*net.TCPAddr)
		refused := func(from net.Addr) { l.reportConnection(from, stream.name) }
		listener = &filteredListener{listener, l.admits, refused}
		if stream.name == TLS {
			if l.cfg.Certificate == nil {
				_ = listener.Close()
				return errors.New("listen at TLS: there is no certificate")
			}
			listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{*l.cfg.Certificate}, MinVersion: tls.VersionTLS12})
		}
		l.opened(stream.name, addr.IP, addr.Port, listener.Close, func() error { return stream.serve(listener) })
	}
	if l.udp.IP == nil { // nobody listens at UDP: no request leaves by it
		return nil
	}
	return l.waitUntilServed()
}

// family returns the network of an address: IPv6 if its host is an IPv6 address, else IPv4.
func family(network, addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil && isIPv6(host) {
		return network + "6"
	}
	return network + "4"
}

func isIPv6(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.To4() == nil
}

// SameFamily reports whether two hosts are both IPv6 addresses, or neither is. A name counts as IPv4.
func SameFamily(a, b string) bool { return isIPv6(a) == isIPv6(b) }

func (l *Transport) opened(transport string, ip net.IP, port int, closing func() error, serve func() error) {
	l.ports[transport] = port
	l.closers = append(l.closers, closing)
	if l.cfg.Advertised == "" {
		l.cfg.Advertised = ip.String()
	}
	l.serving.Go(func() {
		if err := serve(); err != nil && !errors.Is(err, net.ErrClosed) {
			l.cfg.Log.Error("SIP listener failed", "transport", transport, "error", err)
		}
	})
}

// waitUntilServed waits until the UDP socket stands in the transport's pool: a request that left before would get a socket of its own.
func (l *Transport) waitUntilServed() error {
	for begun := time.Now(); time.Since(begun) < dialTimeout; time.Sleep(time.Millisecond) {
		if conn, err := l.transport.GetConnection(UDP, l.udp.String()); err == nil {
			_, _ = conn.TryClose()
			return nil
		}
	}
	return fmt.Errorf("listen at udp %s: it is not served", l.udp.String())
}

// Close stops listening and ends all transactions; calls go on without us.
func (l *Transport) Close() {
	l.sending.Lock()
	l.closed = true
	l.sending.Unlock()
	for _, closing := range l.closers {
		_ = closing()
	}
	l.transactions.Close()
	_ = l.transport.Close()
	l.serving.Wait()
}

// Host is where peers reach us.
func (l *Transport) Host() string { return l.cfg.Advertised }

// Ports are all of them.
func (l *Transport) Ports() map[string]int { return maps.Clone(l.ports) }

// Port is the one that peers reach us at by a transport; 0: we do not listen there.
func (l *Transport) Port(transport string) int { return l.ports[transport] }

// Contact is the URI at which peers reach us by a transport.
func (l *Transport) Contact(user, transport string) sip.Uri {
	uri := sip.Uri{Scheme: "sip", User: user, Host: l.cfg.Advertised, Port: l.ports[transport]}
	if transport != UDP {
		uri.UriParams.Add("transport", strings.ToLower(transport))
	}
	return uri
}

func (l *Transport) admits(addr net.Addr) bool {
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && l.cfg.Admit != nil && l.cfg.Admit(at.Addr().Unmap())
}

// filter drops what a stranger sends by UDP, unless it belongs to a call of ours. Streams were judged when they were accepted, or we opened them.
func (l *Transport) filter(from sip.TransportReadProps, data []byte) ([]byte, error) {
	if from.Transport != UDP || l.admits(from.RemoteAddr) {
		return data, nil
	}
	if id := callID(data); id != "" && (l.expectsResponse(id) || l.cfg.HasCall != nil && l.cfg.HasCall(id)) {
		return data, nil
	}
	l.reportDatagram(from.RemoteAddr, data)
	return nil, nil
}

func (l *Transport) expectsResponse(callID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending[callID] > 0
}

// expectResponse has a Call-ID heard until the answer is called.
func (l *Transport) expectResponse(callID string) (over func()) {
	l.mu.Lock()
	l.pending[callID]++
	l.mu.Unlock()
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pending[callID]--; l.pending[callID] == 0 {
			delete(l.pending, callID)
		}
	})
}

// receiveBufferBytes is what the system is asked to hold of them while nobody reads, in bytes.
const receiveBufferBytes = 4 << 20

// errorPause is how long a listener rests after a fault that is not its end: no descriptors, no memory. sipgo would listen no more.
const errorPause = 50 * time.Millisecond

// datagramConn continues to read after errors. It records datagrams.
type datagramConn struct {
	net.PacketConn
	line *Transport
}

func (s *datagramConn) WriteTo(data []byte, to net.Addr) (int, error) {
	n, err := s.PacketConn.WriteTo(data, to)
	if err == nil && s.line.tracing() {
		s.line.traceDatagram(true, to, data)
	}
	return n, err
}

func (s *datagramConn) ReadFrom(into []byte) (int, net.Addr, error) {
	for {
		n, from, err := s.PacketConn.ReadFrom(into)
		if err == nil && s.line.tracing() {
			s.line.traceDatagram(false, from, into[:n])
		}
		if err == nil || errors.Is(err, net.ErrClosed) {
			return n, from, err
		}
		time.Sleep(errorPause)
	}
}

// filteredListener closes connections of strangers as they come, and listens on after faults.
type filteredListener struct {
	net.Listener
	admits  func(net.Addr) bool
	refused func(net.Addr)
}

func (g *filteredListener) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, err
		case err != nil:
			time.Sleep(errorPause)
		case g.admits(conn.RemoteAddr()):
			return conn, nil
		default:
			g.refused(conn.RemoteAddr())
			_ = conn.Close()
		}
	}
}

// debugOnly makes debug lines of everything.
type debugOnly struct{ slog.Handler }

func (d debugOnly) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

func (d debugOnly) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

func (d debugOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugOnly{d.Handler.WithAttrs(attrs)}
}

func (d debugOnly) WithGroup(name string) slog.Handler { return debugOnly{d.Handler.WithGroup(name)} }
