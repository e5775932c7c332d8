// Package dtmf knows digits as RFC 4733 sends them: telephone-event packets, each with the whole duration so far, the last of them three
// times. Pure: what came at which moment goes in, digits and payloads come out.

package media

import (
	"encoding/binary"
	"strings"
	"time"
)

// digits by event code (RFC 4733 3.2).
const digits = "0123456789*#ABCD"

// ValidDigits says whether every character is a digit that can be sent.
func ValidDigits(wanted string) bool {
	return strings.Trim(wanted, digits) == ""
}

// volume is -10 dBm0, in the middle of what receivers expect.
const volume = 10

// DTMFReceiver tells digits from the packets of one stream.
type DTMFReceiver struct {
	open      bool // an event was heard and has not ended
	known     bool // there was an event at all
	event     byte
	timestamp uint32 // of the event heard last
	at        time.Duration
}

// lull is how long an event whose end was lost goes on being the same one: five packets at 20 ms.
const lull = 100 * time.Millisecond

// Hear takes a telephone-event's payload and says whether a digit begins with it. A digit is told at its first packet, so that no lost end
// can lose it; the rest of its packets, late ones, repeated ends and the parts of a very long one (RFC 4733 2.5.1.3) say nothing more.
func (h *DTMFReceiver) Hear(payload []byte, timestamp uint32, marker bool, now time.Duration) (digit byte, begins bool) {
	if len(payload) < 4 || int(payload[0]) >= len(digits) {
		return 0, false // 16 is a flash; others are no digits
	}
	event, ended := payload[0], payload[1]&0x80 != 0
	newer := !h.known || int32(timestamp-h.timestamp) > 0
	if h.known && !newer {
		if timestamp == h.timestamp {
			h.at = now
			if ended {
				h.open = false
			}
		}
		return 0, false
	}
	// Some senders move the timestamp with each packet, and long events begin anew each 8 s: without marker, without a lull and
	// without an end between, it is still the same key.
	same := h.open && event == h.event && !marker && now-h.at < lull
	h.known, h.open, h.event, h.timestamp, h.at = true, !ended, event, timestamp, now
	return digits[event], !same
}

// Restart forgets the timestamps: the far end counts anew.
func (h *DTMFReceiver) Restart() { *h = DTMFReceiver{} }

const (
	// frame is 20 ms of timestamp.
	frame = 160
	// tone and pause in frames: 100 ms and 100 ms, twice what ITU-T Q.24 asks of a receiver.
	tone, pause = 5, 5
	// ends is how often the end is sent (RFC 4733 2.5.1.4).
	ends = 3
)

// Queue is the most digits that wait to be sent.
const Queue = 64

// DTMFSender makes the packets of digits, one each 20 ms.
type DTMFSender struct {
	queue   string
	phase   int // frames of this digit so far
	began   uint32
	started bool
}

// Send puts digits in the queue; false: they are none, or too many.
func (s *DTMFSender) Send(wanted string) bool {
	if !ValidDigits(wanted) || len(s.queue)+len(wanted) > Queue {
		return false
	}
	s.queue += wanted
	return true
}

// DTMFPacket is one telephone-event to send.
type DTMFPacket struct {
	Payload   [4]byte
	Timestamp uint32
	Marker    bool
}

// Next says what goes out in the frame that begins at now (a timestamp). event: this packet, in place of audio. Otherwise audio goes out, and muted
// says that it is the pause behind a digit.
func (s *DTMFSender) Next(now uint32) (p DTMFPacket, event, muted bool) {
	if s.queue == "" {
		return p, false, false
	}
	if !s.started {
		s.started, s.began, s.phase = true, now, 0
	}
	phase := s.phase
	s.phase++
	if phase >= tone+ends-1 {
		if s.phase == tone+ends-1+pause {
			s.queue, s.started = s.queue[1:], false
		}
		return p, false, true
	}
	p.Payload[0] = byte(strings.IndexByte(digits, s.queue[0]))
	p.Payload[1] = volume
	if phase >= tone-1 {
		p.Payload[1] |= 0x80
	}
	binary.BigEndian.PutUint16(p.Payload[2:], uint16(min(phase+1, tone)*frame))
	p.Timestamp, p.Marker = s.began, phase == 0
	return p, true, false
}
