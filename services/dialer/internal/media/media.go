// Package media sends and receives the audio of phone calls. Each call has an RTP stream with its
// own port. One loop sends the frames of all streams at the right times. The package handles A-law,
// SRTP, telephone-events, packet loss, reordering, and packets from unknown senders.
//
// The rest of the dialer uses only 8 kHz mu-law in frames of 20 ms (160 bytes). The owner of a
// stream receives frames and digits, and provides frames. Package sdp negotiates the streams.
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

// Frame is the number of bytes of 20 ms of mu-law.
const Frame = BufferedFrame

// Source provides the audio that a stream sends. Its methods must not block, because the pacing
// loop calls them.
type Source interface {
	// NextFrame writes mu-law to dst, which has Frame bytes. It is called every 20 ms while the stream
	// may send. It returns false if there is no audio to send.
	NextFrame(dst []byte) bool
	// FrameUnsent is called if the last frame from NextFrame could not be sent.
	FrameUnsent()
}

// Sink receives each digit once. It receives 50 frames per second, from the first packet until
// Close, with silence for missing packets. A frame is valid only until the method returns. The
// methods must return immediately and must not call the stream.
type Sink interface {
	HearFrame(frame []byte)
	HearDigit(digit byte)
}

// Settings contains the settings of all streams.
type Settings struct {
	// Bind is the local address of every stream. sdp.Local contains the address for far ends, which
	// can differ.
	Bind netip.Addr
	// PortLow and PortHigh are the bounds of the port range. RTP uses only the even ports. If PortLow
	// is 0, the operating system chooses the ports.
	PortLow, PortHigh uint16
	// Rest is how long a port stays bound after the end of its stream. If 0, the constant Rest
	// applies.
	Rest time.Duration
	// A stream times out if no RTP or RTCP packet arrives for too long: for FirstPacket before the
	// first packet, and for Silence after any packet. 0 means 30 s and 15 s. Leg.Timeout can replace
	// these limits.
	FirstPacket, Silence time.Duration
}

// NoTimeout is the value of Leg.Timeout with which a stream never times out.
const NoTimeout time.Duration = -1

// Leg is the owner of one stream.
type Leg struct {
	// Source and Sink can be nil. Without a Source, the stream sends silence. Without a Sink, it drops
	// received audio.
	Source Source
	Sink   Sink
	// TimedOut is called when the stream times out: once for each period without packets, in a new
	// goroutine. It is not called while the call is on hold.
	TimedOut func()
	// Timeout replaces Settings.Silence and a shorter Settings.FirstPacket. If Timeout is 0, the
	// values in Settings apply.
	Timeout time.Duration
}

// Streams contains all streams of this process.
type Streams struct {
	settings Settings
	ports    *PortPool
	now      func() time.Duration // monotonic time since New

	mu     sync.Mutex // protects the three fields that follow
	all    map[*Stream]bool
	opened int
	closed Stats // sum of the counts of closed streams

	live    atomic.Int64
	woken   chan struct{} // receives a value after a stream was opened
	pacer   pacer
	pacing  sync.Mutex // locked while the pacing loop uses streams; protects paced
	paced   []*Stream
	skipped atomic.Uint64
	late    lateness
}

// New creates the port pool. Nothing is sent before Run is called. metrics can be nil.
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

// Open binds a port for a stream. Until Connect is called, the stream sends nothing and drops all
// received packets.
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
	stream.schedule.start(int64(slot), s.pacer.turn.Load())
	s.paced = append(s.paced, stream)
	s.pacing.Unlock()
	s.live.Add(1)
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// remove removes the stream. It returns when the pacing loop no longer uses the stream.
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
		stats.Jitter = 0 // the gauge of the jitter includes only open streams
		s.closed.addStats(stats)
	}
}

// Run sends a frame of each stream every 20 ms until ctx ends. After that, open streams do not send
// any more. Run sleeps while there are no streams.
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
		timer.Reset(s.sendDueFrames(s.now()))
	}
}

// ErrClosed means that the stream is closed.
var ErrClosed = errors.New("stream is closed")

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
			s.receivePacket(buffer[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), s.streams.now())
		case errors.Is(err, net.ErrClosed) || s.isClosed():
			return
		}
	}
}
