// Package media sends and receives the audio of phone calls: RTP streams, each on its own port, all
// paced by one loop. It handles A-law, SRTP, telephone-events, packet loss, reordering and packets
// of strangers. To the rest of the dialer, audio is 8 kHz mu-law in frames of 20 ms, 160 bytes. The
// owner of a stream receives frames and digits and provides frames. The package does not depend on
// calls or SIP. Package sdp negotiates the streams.
package media

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Frame is the size of 20 ms of mu-law in bytes.
const Frame = BufferedFrame

// Source provides the audio that a stream sends. The pacing loop calls it, so its methods must not
// block.
type Source interface {
	// NextFrame fills dst, which has Frame bytes, with mu-law. It is called every 20 ms while the
	// stream may send, and returns false if there is nothing to send.
	NextFrame(dst []byte) bool
	// FrameUnsent is called if the frame that NextFrame returned last could not be sent.
	FrameUnsent()
}

// Sink receives the far end's audio: 50 frames per second from its first packet until Close, with
// silence for missing packets, and each digit once. A frame is valid only during the call. The
// reader or the pacing loop calls it, so it must not block and must not call its stream.
type Sink interface {
	HearFrame(frame []byte)
	HearDigit(digit byte)
}

// Settings are the settings of all streams.
type Settings struct {
	// Bind is the local address of every stream. The address that far ends use can differ
	// (sdp.Local).
	Bind netip.Addr
	// PortLow and PortHigh are the range of ports, of which the even ones are used. PortLow 0 means
	// any port.
	PortLow, PortHigh uint16
	// Rest is how long a port stays bound after its stream. 0 means the constant Rest.
	Rest time.Duration
	// FirstPacket and Silence are how long no RTP and no RTCP may arrive, before the first packet
	// and after any packet. 0 means 30 s and 15 s. They apply to streams whose Leg has no Timeout.
	FirstPacket, Silence time.Duration
}

// NoTimeout turns off the timeout of a Leg.
const NoTimeout time.Duration = -1

// Leg is the owner of one stream.
type Leg struct {
	// Source and Sink may be nil. Then silence is sent, or audio is dropped.
	Source Source
	Sink   Sink
	// TimedOut is called in a new goroutine, once for each period in which nothing arrived for too
	// long. It is not called while either side holds the call.
	TimedOut func()
	// Timeout replaces Settings.Silence, and also FirstPacket if it is longer. 0 means the
	// Settings.
	Timeout time.Duration
}

// Streams has all streams of this process.
type Streams struct {
	settings Settings
	ports    *PortPool
	now      func() time.Duration // monotonic time since New

	mu     sync.Mutex // protects the three fields below
	all    map[*Stream]bool
	opened int
	closed Stats // sum of the closed streams

	live    atomic.Int64
	woken   chan struct{} // receives a value after a stream was opened
	pacer   pacer
	pacing  sync.Mutex // held while the pacing loop uses streams; protects paced
	paced   []*Stream
	skipped atomic.Uint64
	late    lateness
}

// New creates the port pool. Nothing is sent before Run. metrics may be nil.
func New(settings Settings, metrics prometheus.Registerer) (*Streams, error) {
	if settings.Rest == 0 {
		settings.Rest = Rest
	}
	if settings.FirstPacket == 0 {
		settings.FirstPacket = 30 * time.Second
	}
	if settings.Silence == 0 {
		settings.Silence = 15 * time.Second
	}
	ports, err := NewPortPool(settings.Bind, settings.PortLow, settings.PortHigh, settings.Rest)
	if err != nil {
		return nil, fmt.Errorf("open the RTP ports: %w", err)
	}
	begun := time.Now()
	s := &Streams{
		settings: settings,
		ports:    ports,
		now:      func() time.Duration { return time.Since(begun) },
		all:      map[*Stream]bool{},
		woken:    make(chan struct{}, 1),
	}
	if metrics != nil {
		if err := metrics.Register(collector{s}); err != nil {
			return nil, fmt.Errorf("register the metrics of RTP: %w", err)
		}
	}
	return s, nil
}

// Open binds a port for a stream. Before Connect nothing is sent, and packets are dropped.
func (s *Streams) Open(leg Leg) (*Stream, error) {
	conn, err := s.ports.Take()
	if err != nil {
		return nil, err
	}
	stream := newStream(s, leg)
	stream.conn = conn
	stream.send = func(packet []byte, to netip.AddrPort) error {
		_, err := conn.WriteToUDPAddrPort(packet, to)
		return err
	}
	stream.listenRTCP()
	s.add(stream)
	go stream.read()
	return stream, nil
}

func (s *Streams) add(stream *Stream) {
	s.mu.Lock()
	s.all[stream] = true
	slot := s.opened % slots
	s.opened++
	s.mu.Unlock()
	s.pacing.Lock()
	stream.moment.begin(int64(slot), s.pacer.turn.Load())
	s.paced = append(s.paced, stream)
	s.pacing.Unlock()
	s.live.Add(1)
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// remove returns when the pacing loop does not use the stream any more.
func (s *Streams) remove(stream *Stream) {
	s.pacing.Lock()
	s.paced = slices.DeleteFunc(s.paced, func(other *Stream) bool { return other == stream })
	s.pacing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[stream] {
		s.live.Add(-1)
		delete(s.all, stream)
		stats := stream.Stats()
		stats.Jitter = 0 // a gauge of open streams
		s.closed.add(stats)
	}
}

// Run sends a frame of each stream every 20 ms until ctx ends. Open streams then stay open without
// sending. Without streams it sleeps.
func (s *Streams) Run(ctx context.Context) error {
	defer s.ports.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if s.live.Load() == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-s.woken:
			}
			s.pacer.turn.Store(max(s.pacer.turn.Load(), int64(s.now()/slotTime)))
		}
		timer.Reset(s.pace(s.now()))
	}
}

// ErrClosed means that the stream was closed.
var ErrClosed = errors.New("stream is closed")

// silent fills a frame with silence.
func silent(frame []byte) {
	for i := range frame {
		frame[i] = Silence
	}
}

func (s *Stream) read() {
	buffer := make([]byte, 2048)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buffer)
		switch {
		case err == nil:
			s.take(buffer[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), s.streams.now())
		case errors.Is(err, net.ErrClosed) || s.isClosed():
			return
		}
	}
}
