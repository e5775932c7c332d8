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
// its Source and Sink must not call them.
type Stream struct {
	streams *Streams
	leg     Leg
	conn    *net.UDPConn
	// rtcp is the port above conn's. It is nil if it could not be bound.
	rtcp   *net.UDPConn
	send   func(packet []byte, to netip.AddrPort) error
	moment moment
	target atomic.Pointer[netip.AddrPort] // destination; nil: none

	out sending
	in  hearing
}

// sending is the state of the sending direction.
type sending struct {
	mu        sync.Mutex
	direction sdp.Direction
	codec     sdp.Codec
	event     uint8
	seal      *Encrypter
	digits    DTMFSender

	header     rtp.Header
	base       uint32 // timestamp of frame 0
	last       int64  // last sent frame
	contiguous bool
	packet     [headerSize + Frame + Overhead]byte

	sent, unsent, events uint64
	late, latest         time.Duration // sum and maximum of the delays
}

// hearing is the state of the receiving direction.
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
	ssrc      uint32 // of the audio, if sourced is true
	sourced   bool
	pressing  uint32 // SSRC of the last events
	pressed   FrameLimit

	heard bool          // any packet arrived
	alive time.Duration // time of the last packet
	told  bool          // the timeout was reported

	stats Stats
}

// accepted is the meaning of a payload type.
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

// Port returns the local port for the description.
func (s *Stream) Port() uint16 {
	return s.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

// Connect starts or continues the stream as negotiated: at early media, at the answer and at each
// re-INVITE. What has not changed continues without a break, also keys and the latch. Each call
// restarts the timeout.
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

// aim sets the destination to the latch's target.
func (s *Stream) aim() {
	to := s.in.latch.Target()
	if old := s.target.Load(); old != nil && *old == to {
		return
	}
	if !to.IsValid() {
		s.target.Store(nil)
		return
	}
	moved := to // only this copy escapes, so a packet that changes nothing does not allocate
	s.target.Store(&moved)
}

// ErrNoDigits means that the far end does not support telephone-events, the digits are invalid, or
// too many wait.
var ErrNoDigits = errors.New("these digits cannot be sent")

// SendDigits queues digits (0-9 * # A-D). They are sent as telephone-events of 100 ms instead of
// audio, never as tones.
func (s *Stream) SendDigits(digits string) error {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if s.out.event == 0 || !s.out.digits.Send(digits) {
		return ErrNoDigits
	}
	return nil
}

// SpeakSoon reports that the Source has audio after a time without. If the far end has heard
// silence, the audio is sent within 5 ms instead of at the stream's usual turn. The following
// frames are sent every 20 ms after that.
func (s *Stream) SpeakSoon() { s.moment.soon(s.streams.pacer.turn.Load()) }

// Close ends the stream and returns its counts. After it returns, Source and Sink are not called
// any more. The port rests. Later calls only return the counts. The caller must not hold a lock
// that Source or Sink needs.
func (s *Stream) Close() Stats {
	s.in.mu.Lock()
	closed := s.in.closed
	s.in.closed = true
	s.in.mu.Unlock()
	if !closed {
		s.streams.remove(s)
		if s.conn != nil {
			_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // ends the reader
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
