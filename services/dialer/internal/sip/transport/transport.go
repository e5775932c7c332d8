// Package transport sends and receives SIP messages. It contains the sockets, transports and
// transactions (emiago/sipgo), the filter of source addresses, and digest authentication. It has no
// dialogs and no calls. Two functions in Config receive the requests and responses.
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

// Transports of SIP.
const (
	UDP = "UDP"
	TCP = "TCP"
	TLS = "TLS"
)

// dialTimeout limits the setup of one TCP or TLS connection.
const dialTimeout = 3 * time.Second

// Config configures a Transport. A transport whose address is empty has no listener. Port 0 means
// any free port.
type Config struct {
	UDP, TCP, TLS string
	// Advertised is the host at which peers reach this side. If empty, the host of the first
	// listener is used.
	Advertised string
	// Certificate is the server certificate for TLS. Roots contains the trusted certificates; nil
	// means those of the system. ServerName is the name that a peer's certificate must contain, even
	// after an SRV lookup (RFC 5922 section 4). If ServerName is empty, the certificate must contain
	// the peer's address.
	Certificate *tls.Certificate
	Roots       *x509.CertPool
	ServerName  string
	// Admit reports whether an address may send requests. From other addresses, only messages of this
	// process's calls are accepted. HasCall reports whether a Call-ID belongs to such a call. Both
	// functions are called before a message is parsed, for every message, and must not block.
	Admit   func(netip.Addr) bool
	HasCall func(callID string) bool
	// Rejected is called for each INVITE and each connection that was dropped because Admit refused
	// its address. It must not block, and it can be nil. The texts come from an unknown peer and can
	// be hostile.
	Rejected func(Rejected)
	// Ports contains the listening ports of another Transport. If Ports is set, this Transport does
	// not listen and only opens connections.
	Ports map[string]int
	// Request is called for each request in a new goroutine.
	Request func(*sip.Request, *sip.ServerTx)
	// Response is called for the responses in the order of their arrival. It must not block and must
	// not change the response.
	Response func(*sip.Response)
	// Trace records messages while Tracing returns true. If both are nil, no messages are recorded.
	// Trace must not use the message's data after it has returned.
	Trace   func(siptrace.Message)
	Tracing func() bool
	Log     *slog.Logger
	// Names resolves host names. If nil, the system's resolver is used.
	Names Names
}

// Transport sends and receives messages until Close is called. Its methods are safe for concurrent
// use.
type Transport struct {
	cfg          Config
	transport    *sip.TransportLayer
	transactions *sip.TransactionLayer
	ports        map[string]int
	udp          sip.Addr
	names        Names
	closers      []func() error
	serving      sync.WaitGroup

	// sendMu is locked for reading while a message is sent. Close locks it for writing, because a
	// message that is sent after Close would open a new socket at the same address.
	sendMu sync.RWMutex
	closed bool

	mu      sync.Mutex
	pending map[string]int // number of requests that wait for a response, by Call-ID
}

// allowLargeDatagrams permits datagrams up to the size limit of UDP, because LargeOverTCP decides
// which requests use TCP. It also disables sipgo's default logger. Both settings are package
// variables of sipgo.
var allowLargeDatagrams = sync.OnceFunc(func() {
	sip.UDPMTUSize = 65_000
	sip.SetDefaultLogger(slog.New(slog.DiscardHandler))
})

// Open opens the listeners. If it cannot open one of them, it closes the others and returns an
// error.
func Open(cfg Config) (*Transport, error) {
	allowLargeDatagrams()
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
	// sipgo logs the contents of invalid messages at error level. The logger quiet lowers these
	// records to debug level.
	quiet := slog.New(debugOnly{cfg.Log.Handler()})
	l.transport = sip.NewTransportLayer(net.DefaultResolver, sip.NewParser(), &tls.Config{RootCAs: cfg.Roots, ServerName: cfg.ServerName, MinVersion: tls.VersionTLS12},
		sip.WithTransportLayerLogger(quiet), sip.WithTransportLayerReadFilter(l.filterDatagram),
		sip.WithTransportLayerTransports(sip.TransportsConfig{
			TCP: &sip.TransportTCP{DialerCreate: dialer, WriteTimeout: dialTimeout},
			TLS: &sip.TransportTLS{TransportTCP: &sip.TransportTCP{DialerCreate: dialer, WriteTimeout: dialTimeout}},
		}))
	// sipgo calls this function in the goroutine that reads the socket, before it passes the message
	// to a transaction.
	l.transport.OnMessage(func(msg sip.Message) {
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
		conn, err := net.ListenPacket(networkFor("udp", l.cfg.UDP), l.cfg.UDP)
		if err != nil {
			return fmt.Errorf("listen at udp %s: %w", l.cfg.UDP, err)
		}
		if udp, is := conn.(*net.UDPConn); is {
			_ = udp.SetReadBuffer(receiveBufferBytes) // the operating system can limit the size
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
		listener, err := net.Listen(networkFor("tcp", stream.addr), stream.addr)
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
	if l.udp.IP == nil { // without a UDP listener, no request is sent over UDP
		return nil
	}
	return l.waitUntilServed()
}

// networkFor adds the IP version of an address to the name of a network: 6 if its host is an IPv6
// address, else 4.
func networkFor(network, addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil && isIPv6(host) {
		return network + "6"
	}
	return network + "4"
}

func isIPv6(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.To4() == nil
}

// SameFamily reports whether both hosts have the same address family. A host name counts as IPv4.
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

// waitUntilServed waits until sipgo has stored the UDP socket. Without the wait, sipgo would open
// another socket for an early request.
func (l *Transport) waitUntilServed() error {
	for begun := time.Now(); time.Since(begun) < dialTimeout; time.Sleep(time.Millisecond) {
		if conn, err := l.transport.GetConnection(UDP, l.udp.String()); err == nil {
			_, _ = conn.TryClose()
			return nil
		}
	}
	return fmt.Errorf("listen at udp %s: the SIP library has not started to read the socket", l.udp.String())
}

// Close closes the listeners and ends all transactions. Calls continue at the peers.
func (l *Transport) Close() {
	l.sendMu.Lock()
	l.closed = true
	l.sendMu.Unlock()
	for _, closing := range l.closers {
		_ = closing()
	}
	l.transactions.Close()
	_ = l.transport.Close()
	l.serving.Wait()
}

// Host returns the host at which peers reach this side.
func (l *Transport) Host() string { return l.cfg.Advertised }

// Ports returns the ports of all transports.
func (l *Transport) Ports() map[string]int { return maps.Clone(l.ports) }

// Port returns the port of a transport, or 0 if the transport has no listener.
func (l *Transport) Port(transport string) int { return l.ports[transport] }

// Contact returns the URI at which peers reach this side over a transport.
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

// filterDatagram drops a datagram from an address that is not admitted, unless it belongs to a call
// of this process. TCP and TLS connections are checked when they are accepted.
func (l *Transport) filterDatagram(from sip.TransportReadProps, data []byte) ([]byte, error) {
	if from.Transport != UDP || l.admits(from.RemoteAddr) {
		return data, nil
	}
	if id := callIDOf(data); id != "" && (l.expectsResponse(id) || l.cfg.HasCall != nil && l.cfg.HasCall(id)) {
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

// expectResponse accepts messages with this Call-ID from any address until stop is called.
func (l *Transport) expectResponse(callID string) (stop func()) {
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

// receiveBufferBytes is the requested size of the receive buffer of the UDP socket.
const receiveBufferBytes = 4 << 20

// errorPause is the pause after a temporary error of a listener, for example if there are no free
// file descriptors. The listener then tries again, because sipgo would stop listening after the
// error.
const errorPause = 50 * time.Millisecond

// datagramConn is a PacketConn that continues to read after errors and records datagrams.
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

// filteredListener is a Listener that closes connections from addresses that are not admitted. It
// continues after errors.
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

// debugOnly changes the level of every record to debug.
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
