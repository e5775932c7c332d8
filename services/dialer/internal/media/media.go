// Package media is the audio of phone calls on the wire: RTP streams, each on a port of its own, all paced by one loop. Inside the house audio is
// µ-law at 8 kHz in frames of 20 ms, 160 bytes; A-law, SRTP, telephone-events, loss, disorder and strangers end here. It knows neither calls nor
// SIP: who owns a stream hears frames and digits from it and is asked for frames. What both sides agreed on comes from package sdp.
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

// Frame is 20 ms of µ-law, in bytes.
const Frame = BufferedFrame

// Source provides the audio that a stream sends. The pacing loop calls it, so its methods must not block.
type Source interface {
	// NextFrame fills dst, which has Frame bytes, with µ-law. It is called every 20 ms while the stream may send, and
	// returns false if there is nothing to send.
	NextFrame(dst []byte) bool
	// FrameUnsent is called if the frame that NextFrame returned last could not be sent.
	FrameUnsent()
}

// Sink hears the far end: from its first packet on 50 frames a second until Close, silence where nothing came, and each digit once. A frame is good for the
// call alone. It is called by the goroutine that reads, or by the pacing loop: it must not block, and must not call back into its stream.
type Sink interface {
	HearFrame(frame []byte)
	HearDigit(digit byte)
}

// Settings are those of all streams.
type Settings struct {
	// Bind is the address of our side of every stream. What is told to far ends is another thing (sdp.Local).
	Bind netip.Addr
	// PortLow and PortHigh are the range of ports, of which the even ones are used. PortLow 0: any.
	PortLow, PortHigh uint16
	// Rest is how long a port stays bound after its stream; 0: port.Rest.
	Rest time.Duration
	// FirstPacket and Silence are how long no RTP and no RTCP may arrive, before the first packet and after
	// any; 0: 30 s and 15 s. They are for streams whose Leg has no Timeout.
	FirstPacket, Silence time.Duration
}

// NoTimeout turns the timeout of a Leg off.
const NoTimeout time.Duration = -1

// Leg is one stream's owner.
type Leg struct {
	// Source and Sink may be nil: silence is sent, nobody hears.
	Source Source
	Sink   Sink
	// TimedOut is told, in a goroutine of its own, once for each time that nothing came for too long. Not while either side holds.
	TimedOut func()
	// Timeout replaces Settings.Silence, and FirstPacket if it is longer; 0: the Settings count.
	Timeout time.Duration
}

// Streams are all streams of this process.
type Streams struct {
	settings Settings
	ports    *PortPool
	now      func() time.Duration // since New, monotonic

	mu     sync.Mutex // guards the three below
	all    map[*Stream]bool
	opened int
	closed Stats // of streams that are no more

	live    atomic.Int64
	woken   chan struct{} // one is there after a stream was opened
	pacer   pacer
	pacing  sync.Mutex // held while the pacing loop is in streams; guards paced
	paced   []*Stream
	skipped atomic.Uint64
	late    lateness
}

// New makes the port pool. Run paces; without it nothing is sent. metrics may be nil.
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
	s := &Streams{settings: settings, ports: ports, now: func() time.Duration { return time.Since(begun) }, all: map[*Stream]bool{}, woken: make(chan struct{}, 1)}
	if metrics != nil {
		if err := metrics.Register(collector{s}); err != nil {
			return nil, fmt.Errorf("register the metrics of RTP: %w", err)
		}
	}
	return s, nil
}

// Open binds a port for a stream. Nothing is sent, and what comes is not heard, until Connect.
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

// remove returns when the pacing loop is not in the stream and will not be again.
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
		stats.Jitter = 0 // a gauge of what is open
		s.closed.add(stats)
	}
}

// Run sends each stream a frame each 20 ms until ctx ends. Streams that are open then stay open, and silent. While there are none, it sleeps.
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

// ErrClosed: the stream was closed.
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
