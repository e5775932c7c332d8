// Package socket owns one WebSocket to an agent: it may hang, flood or fall silent, and the telephone's side never waits for it. What is said on it is the kind of agent's.

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
	// framesWaiting is how much audio waits for a slow network: a second. Older audio is of no use to an agent.
	framesWaiting = 50
	// messagesWaiting bounds what else waits; an agent that leaves so much unread is lost.
	messagesWaiting = 256
	// MaxMessage bounds one message of the agent's, in bytes.
	MaxMessage = 1 << 20
	// pingEvery is how often a silent agent is asked whether it is there, and pingWait how long its answer may take.
	pingEvery, pingWait = 15 * time.Second, 10 * time.Second
	// farewell bounds how long the last messages of a session may take.
	farewell = time.Second
	// handshake bounds how long the answer to the handshake may take when the caller sets no bound.
	handshake = 10 * time.Second
)

// ErrLost says that the connection is gone, ErrClosed that the agent closed it in order.
var (
	ErrLost   = errors.New("the agent's connection is lost")
	ErrClosed = errors.New("the agent closed its connection")
)

// NewClient opens connections by dial, for handshakes only: no proxy, no redirects, certificates verified. roots nil are the system's.
func NewClient(dial ssrf.Dialing, roots *x509.CertPool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			Proxy:       nil, // the guard would judge the proxy's address instead of the agent's
			DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: handshake,
			Protocols: protocols, ResponseHeaderTimeout: handshake, MaxResponseHeaderBytes: 16 << 10, DisableCompression: true, DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Socket is one connection. Hear, Send and Close may be called at once and never block; Next is one reader's.
type Socket struct {
	conn     *websocket.Conn
	encode   func(dst, frame []byte) []byte
	audio    chan [FrameBytes]byte
	messages chan []byte
	dropped  atomic.Int64
	held     atomic.Bool
	// over ends everything that waits, last what the writer still says.
	over     context.Context
	end      context.CancelFunc
	closing  chan struct{}
	closed   sync.Once
	incoming bytes.Buffer
}

// Dial opens a socket; encode writes a frame as the agent wants it, behind dst, and is called by one goroutine. Audio is held back until Flow.
func Dial(ctx context.Context, client *http.Client, url string, header http.Header, encode func(dst, frame []byte) []byte) (*Socket, error) {
	return dial(ctx, client, url, header, encode, pingEvery, pingWait)
}

func dial(ctx context.Context, client *http.Client, url string, header http.Header, encode func(dst, frame []byte) []byte, every, wait time.Duration) (*Socket, error) {
	conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: client, HTTPHeader: header}) //nolint:bodyclose // the library does
	if told := (*neturl.Error)(nil); errors.As(err, &told) {
		err = told.Err // without the URL: a customer's may hold a token
	}
	if err != nil {
		return nil, fmt.Errorf("open the agent's socket: %w", err)
	}
	conn.SetReadLimit(MaxMessage)
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	s := &Socket{
		conn: conn, encode: encode, audio: make(chan [FrameBytes]byte, framesWaiting), messages: make(chan []byte, messagesWaiting),
		over: over, end: end, closing: make(chan struct{}),
	}
	s.held.Store(true)
	go s.write()
	go s.ping(every, wait)
	return s, nil
}

// Flow lets audio through from now on.
func (s *Socket) Flow() { s.held.Store(false) }

// Hear takes a frame, or drops it and counts that.
func (s *Socket) Hear(frame []byte) {
	if s.held.Load() || len(frame) != FrameBytes {
		return
	}
	select {
	case s.audio <- [FrameBytes]byte(frame):
	default:
		s.dropped.Add(1)
	}
}

// Dropped is how many frames had no room.
func (s *Socket) Dropped() int64 { return s.dropped.Load() }

// Send takes a message, which goes before any audio that waits. An agent that has left too many unread is lost.
func (s *Socket) Send(message []byte) {
	select {
	case s.messages <- message:
	default:
		s.Cut()
	}
}

// Next is the agent's next text message, the receiver's until the next call. Binary messages are passed over.
func (s *Socket) Next() ([]byte, error) {
	for {
		kind, r, err := s.conn.Reader(s.over)
		if err != nil {
			return nil, s.lost(err)
		}
		s.incoming.Reset()
		if _, err := s.incoming.ReadFrom(r); err != nil {
			return nil, s.lost(err)
		}
		if kind == websocket.MessageText {
			return s.incoming.Bytes(), nil
		}
	}
}

// lost ends everything.
func (s *Socket) lost(err error) error {
	s.Cut()
	if code := websocket.CloseStatus(err); code == websocket.StatusNormalClosure || code == websocket.StatusGoingAway {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// Close says last, then goodbye, and ends the connection; it does not wait for that. Again it does nothing.
func (s *Socket) Close(last ...[]byte) {
	s.closed.Do(func() {
		for _, message := range last {
			s.Send(message)
		}
		close(s.closing)
		time.AfterFunc(farewell, s.Cut)
	})
}

// Cut ends the connection at once.
func (s *Socket) Cut() {
	s.end()
	go func() { _ = s.conn.CloseNow() }() // it waits for a write that hangs
}

func (s *Socket) write() {
	defer s.Cut()
	free := context.Background() // a write that hangs ends with the connection, which costs nothing for each frame
	var buf []byte
	for {
		var message []byte
		select { // what is not audio goes first
		case message = <-s.messages:
		default:
			select {
			case message = <-s.messages:
			case frame := <-s.audio:
				buf = s.encode(buf[:0], frame[:])
				message = buf
			case <-s.over.Done():
				return
			case <-s.closing:
				s.sayGoodbye()
				return
			}
		}
		if s.conn.Write(free, websocket.MessageText, message) != nil {
			return
		}
	}
}

func (s *Socket) sayGoodbye() {
	free := context.Background()
	for {
		select {
		case message := <-s.messages:
			if s.conn.Write(free, websocket.MessageText, message) != nil {
				return
			}
		default:
			_ = s.conn.Close(websocket.StatusNormalClosure, "")
			return
		}
	}
}

// ping finds out an agent that is gone without a word. Its connection is cut, which the reader and the writer see.
func (s *Socket) ping(every, wait time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-s.over.Done():
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(s.over, wait)
		err := s.conn.Ping(ctx)
		cancel()
		if err != nil {
			s.Cut()
			return
		}
	}
}
