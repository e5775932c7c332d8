package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	neturl "net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"ringfence.dev/libs/ssrf"
)

const (
	// maxQueuedFrames is the maximum number of audio frames in the queue of a slow connection. 50
	// frames are one second. Later frames are dropped.
	maxQueuedFrames = 50
	// maxQueuedMessages is the maximum number of queued messages without audio. If more messages are
	// queued, the connection is closed.
	maxQueuedMessages = 256
	// MaxMessage is the maximum size of a message from an agent, in bytes.
	MaxMessage = 1 << 20
	// pingInterval is the time between two pings. pingTimeout is how long the pong may take.
	pingInterval, pingTimeout = 15 * time.Second, 10 * time.Second
	// closeTimeout is how long sending the last messages of a session may take.
	closeTimeout = time.Second
	// handshakeTimeout limits the TLS handshake. It also limits the wait for the response to the
	// WebSocket handshake.
	handshakeTimeout = 10 * time.Second
)

// ErrLost means that the connection broke. ErrClosed means that the agent closed the connection
// with a closing handshake.
var (
	ErrLost   = errors.New("the agent's connection is lost")
	ErrClosed = errors.New("the agent closed its connection")
)

// NewClient returns a client for WebSocket handshakes. It uses no proxy and follows no redirects.
// If roots is nil, the system's root certificates are used.
func NewClient(dial ssrf.Dialing, roots *x509.CertPool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			// No proxy may be used. Otherwise the SSRF guard would check the proxy's address instead of the
			// agent's.
			Proxy:                  nil,
			DialContext:            dial,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    handshakeTimeout,
			Protocols:              protocols,
			ResponseHeaderTimeout:  handshakeTimeout,
			MaxResponseHeaderBytes: 16 << 10,
			DisableCompression:     true,
			DisableKeepAlives:      true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Socket is a WebSocket connection to an agent. Hear, Send and Close are safe for concurrent use,
// and never block, even if the agent does not read. Only one goroutine may call Next.
type Socket struct {
	conn        *websocket.Conn
	encodeAudio func(dst, frame []byte) []byte
	audio       chan [FrameBytes]byte
	messages    chan []byte
	dropped     atomic.Int64
	audioHeld   atomic.Bool
	// ctx is canceled when the socket is closed, which ends all waits.
	ctx      context.Context
	cancel   context.CancelFunc
	closing  chan struct{} // closed to make the writer send the last messages
	closed   sync.Once
	incoming bytes.Buffer
}

// Dial opens a socket. encodeFrame appends the message for one audio frame to dst, and is never
// called concurrently. Audio is dropped until Flow is called.
func Dial(
	ctx context.Context, client *http.Client, url string, header http.Header, encodeFrame func(dst, frame []byte) []byte,
) (*Socket, error) {
	return dial(ctx, client, url, header, encodeFrame, pingInterval, pingTimeout)
}

func dial(
	ctx context.Context,
	client *http.Client,
	url string,
	header http.Header,
	encodeFrame func(dst, frame []byte) []byte,
	interval, timeout time.Duration,
) (*Socket, error) {
	options := &websocket.DialOptions{HTTPClient: client, HTTPHeader: header}
	conn, _, err := websocket.Dial(ctx, url, options) //nolint:bodyclose // the library closes the body
	if urlErr := (*neturl.Error)(nil); errors.As(err, &urlErr) {
		err = urlErr.Err // do not log the URL: a customer's URL can contain a token
	}
	if err != nil {
		return nil, fmt.Errorf("open the agent's socket: %w", err)
	}
	conn.SetReadLimit(MaxMessage)
	socketCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Socket{
		conn: conn, encodeAudio: encodeFrame,
		audio: make(chan [FrameBytes]byte, maxQueuedFrames), messages: make(chan []byte, maxQueuedMessages),
		ctx: socketCtx, cancel: cancel, closing: make(chan struct{}),
	}
	s.audioHeld.Store(true)
	go s.write()
	go s.ping(interval, timeout)
	return s, nil
}

// Flow starts sending audio. Before Flow is called, audio is dropped.
func (s *Socket) Flow() { s.audioHeld.Store(false) }

// Hear queues a frame. If the queue is full, it drops the frame and counts it.
func (s *Socket) Hear(frame []byte) {
	if s.audioHeld.Load() || len(frame) != FrameBytes {
		return
	}
	select {
	case s.audio <- [FrameBytes]byte(frame):
	default:
		s.dropped.Add(1)
	}
}

// Dropped returns the number of dropped frames.
func (s *Socket) Dropped() int64 { return s.dropped.Load() }

// Send queues a message. Messages are sent before queued audio. If the queue of messages is full,
// the connection is closed.
func (s *Socket) Send(message []byte) {
	select {
	case s.messages <- message:
	default:
		s.Cut()
	}
}

// Next returns the agent's next text message, which is valid until the next call of Next. It
// ignores binary messages.
func (s *Socket) Next() ([]byte, error) {
	for {
		kind, r, err := s.conn.Reader(s.ctx)
		if err != nil {
			return nil, s.lostError(err)
		}
		s.incoming.Reset()
		if _, err := s.incoming.ReadFrom(r); err != nil {
			return nil, s.lostError(err)
		}
		if kind == websocket.MessageText {
			return s.incoming.Bytes(), nil
		}
	}
}

func (s *Socket) lostError(err error) error {
	s.Cut()
	if code := websocket.CloseStatus(err); code == websocket.StatusNormalClosure || code == websocket.StatusGoingAway {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// Close sends lastMessages and a close frame, and then closes the connection, all in the
// background. Later calls have no effect.
func (s *Socket) Close(lastMessages ...[]byte) {
	s.closed.Do(func() {
		for _, message := range lastMessages {
			s.Send(message)
		}
		close(s.closing)
		time.AfterFunc(closeTimeout, s.Cut)
	})
}

// Cut closes the connection immediately.
func (s *Socket) Cut() {
	s.cancel()
	go func() { _ = s.conn.CloseNow() }() // CloseNow waits for a write in progress
}

func (s *Socket) write() {
	defer s.Cut()
	// Writes need no timeout: closing the connection ends a write that blocks. A context with a
	// timeout for each frame would be more expensive.
	ctx := context.Background()
	var buf []byte
	for {
		var message []byte
		select { // messages are sent before audio
		case message = <-s.messages:
		default:
			select {
			case message = <-s.messages:
			case frame := <-s.audio:
				buf = s.encodeAudio(buf[:0], frame[:])
				message = buf
			case <-s.ctx.Done():
				return
			case <-s.closing:
				s.closeInOrder()
				return
			}
		}
		if s.conn.Write(ctx, websocket.MessageText, message) != nil {
			return
		}
	}
}

func (s *Socket) closeInOrder() {
	ctx := context.Background()
	for {
		select {
		case message := <-s.messages:
			if s.conn.Write(ctx, websocket.MessageText, message) != nil {
				return
			}
		default:
			_ = s.conn.Close(websocket.StatusNormalClosure, "")
			return
		}
	}
}

// ping sends pings. If the agent does not answer in time, ping closes the connection.
func (s *Socket) ping(interval, timeout time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, timeout)
		err := s.conn.Ping(ctx)
		cancel()
		if err != nil {
			s.Cut()
			return
		}
	}
}
