package media

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtp"

	"ringfence.dev/services/dialer/internal/sdp"
)

// Stream is the audio of one call in both directions. Its methods are safe for concurrent use, but
// the Source and the Sink of the stream must not call them.
type Stream struct {
	streams *Streams
	leg     Leg
	conn    *net.UDPConn
	// rtcp is the connection at the port above conn's port. It is nil if that port could not be bound.
	rtcp     *net.UDPConn
	send     func(packet []byte, to netip.AddrPort) error
	schedule sendSchedule
	target   atomic.Pointer[netip.AddrPort] // destination of sent packets; nil if there is none

	out sending
	in  hearing
}

type sending struct {
	mu        sync.Mutex
	direction sdp.Direction
	codec     sdp.Codec
	event     uint8
	seal      *Encrypter
	digits    DTMFSender

	header     rtp.Header
	base       uint32 // timestamp of frame 0
	last       int64  // number of the frame that was sent last
	contiguous bool
	packet     [headerSize + Frame + Overhead]byte

	sent, unsent, events uint64
	late, latest         time.Duration // sum and maximum of the delays of sent packets
}

type hearing struct {
	mu        sync.Mutex
	closed    bool
	direction sdp.Direction // empty until the first Connect
	accepts   [128]payloadKind
	open      *Decrypter
	latch     Latch
	buffer    *JitterBuffer
	digits    DTMFReceiver
	header    rtp.Header
	ssrc      uint32 // SSRC of the audio, if sourced is true
	sourced   bool
	pressing  uint32 // SSRC of the last telephone-event
	pressed   FrameLimit

	heard           bool          // at least one packet has arrived
	alive           time.Duration // time of the last RTP or RTCP packet, or of the last Connect
	timeoutReported bool          // TimedOut was already called for the current period without packets

	stats Stats
}

// payloadKind is the kind of content of a payload type. Packets of the kind foreign are dropped.
type payloadKind uint8

const (
	foreign payloadKind = iota
	muLaw
	aLaw
	event
)

const headerSize = 12

func newStream(streams *Streams, leg Leg) *Stream {
	s := &Stream{streams: streams, leg: leg}
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails
	s.out.header = rtp.Header{
		Version:        2,
		SequenceNumber: binary.BigEndian.Uint16(random[8:]),
		SSRC:           binary.BigEndian.Uint32(random[4:]),
	}
	s.out.base = binary.BigEndian.Uint32(random[:])
	s.in.buffer = NewJitterBuffer(func(frame []byte) {
		if s.leg.Sink != nil {
			s.leg.Sink.HearFrame(frame)
		}
	})
	return s
}

// Port returns the local port, for this side's SDP.
func (s *Stream) Port() uint16 {
	return s.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

// Connect starts or changes the stream as negotiated. It is called at early media, at the answer,
// and at each re-INVITE. If the keys or the far end's address have not changed, they are used
// without a break. Each call of Connect restarts the timeout.
func (s *Stream) Connect(agreed sdp.Agreed) error {
	if len(agreed.Codecs) == 0 {
		return errors.New("connect stream: no codec")
	}
	if err := s.connectIn(agreed); err != nil {
		return err
	}
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	switch {
	case agreed.Out == nil:
		s.out.seal = nil
	case s.out.seal == nil || !s.out.seal.Uses(*agreed.Out):
		seal, err := NewEncrypter(*agreed.Out)
		if err != nil {
			return err
		}
		s.out.seal = seal
	}
	if agreed.EventOut == 0 {
		s.out.digits = DTMFSender{}
	}
	s.out.direction, s.out.codec, s.out.event = agreed.Direction, agreed.Codecs[0], agreed.EventOut
	return nil
}

func (s *Stream) connectIn(agreed sdp.Agreed) error {
	in := &s.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return ErrClosed
	}
	switch {
	case agreed.In == nil:
		in.open = nil
	case in.open == nil || !in.open.Uses(*agreed.In):
		open, err := NewDecrypter(*agreed.In)
		if err != nil {
			return err
		}
		in.open = open
	}
	in.direction = agreed.Direction
	in.accepts = [128]payloadKind{}
	for _, t := range []uint8{agreed.EventOut, agreed.EventIn} {
		if t != 0 {
			in.accepts[t&0x7F] = event
		}
	}
	for _, c := range agreed.Codecs {
		in.accepts[c&0x7F] = muLaw
		if c == sdp.PCMA {
			in.accepts[c&0x7F] = aLaw
		}
	}
	in.latch.Signal(agreed.Remote)
	s.updateTarget()
	in.alive, in.timeoutReported = s.streams.now(), false
	return nil
}

func (s *Stream) updateTarget() {
	to := s.in.latch.Target()
	if old := s.target.Load(); old != nil && *old == to {
		return
	}
	if !to.IsValid() {
		s.target.Store(nil)
		return
	}
	moved := to // a pointer to the parameter would move it to the heap in every call
	s.target.Store(&moved)
}

// ErrNoDigits means that the far end does not support telephone-events, that the digits are
// invalid, or that the queue is full.
var ErrNoDigits = errors.New("these digits cannot be sent")

// SendDigits queues digits (0-9 * # A-D). Each digit is sent as a telephone-event of 100 ms, never
// as a tone.
func (s *Stream) SendDigits(digits string) error {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if s.out.event == 0 || !s.out.digits.Send(digits) {
		return ErrNoDigits
	}
	return nil
}

// SpeakSoon must be called when the Source has audio again after a time without audio. If the
// stream is sending silence, this audio is sent within 5 ms, and the next frames every 20 ms after
// that.
func (s *Stream) SpeakSoon() { s.schedule.speakSoon(s.streams.pacer.turn.Load()) }

// Close ends the stream and returns its counts. After Close, the stream no longer calls Source and
// Sink. Further calls only return the counts. The caller must not hold a lock that Source or Sink
// needs.
func (s *Stream) Close() Stats {
	s.in.mu.Lock()
	closed := s.in.closed
	s.in.closed = true
	s.in.mu.Unlock()
	if !closed {
		s.streams.remove(s)
		if s.conn != nil {
			_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // ends the goroutine that reads packets
			if s.rtcp != nil {
				_ = s.rtcp.Close()
			}
			s.streams.ports.Give(s.conn)
		}
	}
	return s.Stats()
}

func (s *Stream) isClosed() bool {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	return s.in.closed
}
