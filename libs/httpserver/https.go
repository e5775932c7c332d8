package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// handshakeTimeout limits the time in which a client must complete the TLS handshake.
	handshakeTimeout = 10 * time.Second
	// maxHandshakes is the maximum number of concurrent handshakes. Further connections wait in the
	// kernel.
	maxHandshakes = 8192
)

// tlsListener completes the TLS handshake before it returns a connection. It returns a *tls.Conn
// for HTTP/2, because net/http serves HTTP/2 for that type only, and a
// *wireTLSConn for HTTP/1.1.
type tlsListener struct {
	net.Listener
	config *tls.Config
	header http.Header
	ready  chan net.Conn
	failed chan error
	slots  chan struct{} // contains one value for each handshake in progress

	ctx   context.Context //nolint:containedctx // canceled when the listener is closed, which ends the handshakes
	close context.CancelFunc
	once  sync.Once
}

func newTLSListener(listener net.Listener, certificate *Certificate, header http.Header) *tlsListener {
	ctx, cancel := context.WithCancel(context.Background())
	return &tlsListener{
		Listener: listener, header: header, ready: make(chan net.Conn), failed: make(chan error),
		slots: make(chan struct{}, maxHandshakes), ctx: ctx, close: cancel,
		config: &tls.Config{
			MinVersion: tls.VersionTLS12,
			NextProtos: []string{"h2", "http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return certificate.Current()
			},
		},
	}
}

// Accept waits for the next connection whose handshake is complete.
func (l *tlsListener) Accept() (net.Conn, error) {
	l.once.Do(func() { go l.acceptAll() })
	select {
	case conn := <-l.ready:
		return conn, nil
	case err := <-l.failed:
		return nil, err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close closes the listener and ends the handshakes that are not complete.
func (l *tlsListener) Close() error {
	l.close()
	return l.Listener.Close() //nolint:wrapcheck // net/http returns this error
}

func (l *tlsListener) acceptAll() {
	for {
		conn, err := l.Listener.Accept()
		if err == nil {
			select {
			case l.slots <- struct{}{}:
				go l.handshake(conn)
			case <-l.ctx.Done():
				_ = conn.Close()
			}
			continue
		}
		select {
		case l.failed <- err: // net/http waits and calls Accept again if the error is temporary
		case <-l.ctx.Done():
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

func (l *tlsListener) handshake(raw net.Conn) {
	ctx, cancel := context.WithTimeout(l.ctx, handshakeTimeout)
	defer cancel()
	conn := tls.Server(raw, l.config)
	err := conn.HandshakeContext(ctx)
	<-l.slots
	if err != nil {
		slog.DebugContext(ctx, "TLS handshake failed", "client", raw.RemoteAddr().String(), "error", err)
		refusePlainHTTP(err, l.header)
		_ = raw.Close()
		return
	}
	var accepted net.Conn = conn
	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		accepted = &wireTLSConn{wireConn{Conn: conn, header: l.header}, conn}
	}
	select {
	case l.ready <- accepted:
	case <-l.ctx.Done():
		_ = conn.Close()
	}
}

// refusePlainHTTP sends an error response if the handshake failed because the client sent HTTP.
func refusePlainHTTP(failed error, header http.Header) {
	var record tls.RecordHeaderError
	if !errors.As(failed, &record) || record.Conn == nil {
		return
	}
	switch string(record.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		_ = record.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		message := "This address serves HTTPS. Use https:// in the URL."
		_, _ = record.Conn.Write(errorAnswer(http.StatusBadRequest, "bad_request", message, header))
	}
}

// wireTLSConn is a wireConn over TLS.
type wireTLSConn struct {
	wireConn
	tls *tls.Conn
}

// ConnectionState returns the state of the TLS connection, from which net/http sets Request.TLS.
func (c *wireTLSConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }
