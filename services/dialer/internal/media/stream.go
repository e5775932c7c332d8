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

// Stream is one call's audio both ways. Its methods may be called from any goroutine, but not from within its Source or Sink.
type Stream struct {
	streams *Streams
	leg     Leg
	conn    *net.UDPConn
	// rtcp is the port above conn's; nil if it could not be bound.
	rtcp   *net.UDPConn
	send   func(packet []byte, to netip.AddrPort) error
	moment moment
	target atomic.Pointer[netip.AddrPort] // where ours go; nil: nowhere

	out sending
	in  hearing
}

// sending is the way out.
type sending struct {
	mu        sync.Mutex
	direction sdp.Direction
	codec     sdp.Codec
	event     uint8
	seal      *Encrypter
	digits    DTMFSender

	header     rtp.Header
	base       uint32 // the timestamp of frame 0
	last       int64  // the frame sent last
	contiguous bool
	packet     [headerSize + Frame + Overhead]byte

	sent, unsent, events uint64
	late, latest         time.Duration // in sum, and the most
}

// hearing is the way in.
type hearing struct {
	mu        sync.Mutex
	closed    bool
	direction sdp.Direction // empty: not connected
	accepts   [128]accepted
	open      *Decrypter
	latch     Latch
	buffer    *JitterBuffer
	digits    DTMFReceiver
	header    rtp.Header
	ssrc      uint32 // of the audio, once sourced
	sourced   bool
	pressing  uint32 // the SSRC of the events heard last
	pressed   FrameLimit

	heard bool          // anything at all
	alive time.Duration // since when nothing came
	told  bool          // of the timeout

	stats Stats
}

// accepted is what a payload type means.
type accepted uint8

const (
	foreign accepted = iota
	muLaw
	aLaw
	event
)

const headerSize = 12

func newStream(streams *Streams, leg Leg) *Stream {
	s := &Stream{streams: streams, leg: leg}
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails
	s.out.header = rtp.Header{Version: 2, SequenceNumber: binary.BigEndian.Uint16(random[8:]), SSRC: binary.BigEndian.Uint32(random[4:])}
	s.out.base = binary.BigEndian.Uint32(random[:])
	s.in.buffer = NewJitterBuffer(func(frame []byte) {
		if s.leg.Sink != nil {
			s.leg.Sink.HearFrame(frame)
		}
	})
	return s
}

// Port is ours; it goes into the description.
func (s *Stream) Port() uint16 {
	return s.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

// Connect begins, or goes on, as both sides agreed: at early media, at the answer and at each re-INVITE. What did not change goes on without a break,
// keys and latch included. Each call begins the wait for the next packet anew.
func (s *Stream) Connect(agreed sdp.Agreed) error {
	if len(agreed.Codecs) == 0 {
		return errors.New("connect a stream without a codec")
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
	in.accepts = [128]accepted{}
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
	s.aim()
	in.alive, in.told = s.streams.now(), false
	return nil
}

// aim lets ours go where the latch says.
func (s *Stream) aim() {
	to := s.in.latch.Target()
	if old := s.target.Load(); old != nil && *old == to {
		return
	}
	if !to.IsValid() {
		s.target.Store(nil)
		return
	}
	moved := to // escapes, and only here: a packet that changes nothing allocates nothing
	s.target.Store(&moved)
}

// ErrNoDigits: the far end takes no telephone-events, or these are no digits, or too many wait already.
var ErrNoDigits = errors.New("these digits cannot be sent")

// SendDigits sends digits (0-9 * # A-D) as telephone-events, 100 ms each, in place of audio, behind those that wait. They are never sent as tones.
func (s *Stream) SendDigits(digits string) error {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if s.out.event == 0 || !s.out.digits.Send(digits) {
		return ErrNoDigits
	}
	return nil
}

// SpeakSoon says that the Source has something to say and had nothing before: it is sent within 5 ms when the far end has heard silence until now, instead of
// at the stream's usual moment, and 20 ms behind that is sent what follows.
func (s *Stream) SpeakSoon() { s.moment.soon(s.streams.pacer.turn.Load()) }

// Close ends the stream and tells how it went: Source and Sink are not called any more once it returns. Its port rests. The second call only tells.
// Do not hold a lock that Source or Sink take.
func (s *Stream) Close() Stats {
	s.in.mu.Lock()
	closed := s.in.closed
	s.in.closed = true
	s.in.mu.Unlock()
	if !closed {
		s.streams.remove(s)
		if s.conn != nil {
			_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // the reader ends
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
