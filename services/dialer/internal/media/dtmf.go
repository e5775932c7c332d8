package media

import (
	"encoding/binary"
	"strings"
	"time"
)

// dtmfDigits contains the DTMF digits in the order of their event codes (RFC 4733 section 3.2).
const dtmfDigits = "0123456789*#ABCD"

// ValidDigits reports whether every character is a DTMF digit that can be sent.
func ValidDigits(text string) bool {
	return strings.Trim(text, dtmfDigits) == ""
}

// eventVolume is the power level in event packets: -10 dBm0, which every receiver accepts.
const eventVolume = 10

// DTMFReceiver detects digits in the telephone-event packets of one stream (RFC 4733).
type DTMFReceiver struct {
	open      bool // an event has begun and has not ended yet
	known     bool // an event was received
	event     byte
	timestamp uint32 // timestamp of the last event
	at        time.Duration
}

// eventTimeout is the length of five packets of 20 ms. If no packet arrives for this time, the
// event counts as ended, because its end packets were lost.
const eventTimeout = 100 * time.Millisecond

// Hear handles the payload of a telephone-event packet. It reports a new digit at the first packet
// of its event, so that a lost end packet does not lose the digit.
func (h *DTMFReceiver) Hear(
	payload []byte,
	timestamp uint32,
	marker bool,
	now time.Duration,
) (digit byte, begins bool) {
	if len(payload) < 4 || int(payload[0]) >= len(dtmfDigits) {
		return 0, false // not a DTMF digit: event 16 is a hook flash (RFC 4733)
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
	// Some senders change the timestamp with each packet, and long events restart every 8 s. So
	// packets with the same event belong to one key press, unless a marker, a pause or an end packet
	// separates them.
	same := h.open && event == h.event && !marker && now-h.at < eventTimeout
	h.known, h.open, h.event, h.timestamp, h.at = true, !ended, event, timestamp, now
	return dtmfDigits[event], !same
}

// Restart resets the receiver. It must be called when the far end starts a new sequence of
// timestamps.
func (h *DTMFReceiver) Restart() { *h = DTMFReceiver{} }

const (
	// frameSamples is the length of a frame of 20 ms in timestamp units.
	frameSamples = 160
	// digitFrames is the length of a digit, and digitPauseFrames the length of the pause after it.
	// Each is 100 ms, twice the length that ITU-T Q.24 requires.
	digitFrames, digitPauseFrames = 5, 5
	// endPackets is the number of end packets that are sent for each digit (RFC 4733 section
	// 2.5.1.4).
	endPackets = 3
)

// Queue is the maximum number of queued digits.
const Queue = 64

// DTMFSender creates the telephone-event packets of digits, one packet every 20 ms.
type DTMFSender struct {
	queue   string
	phase   int // number of frames of the current digit that were sent
	began   uint32
	started bool
}

// Send queues digits. It returns false if the digits are invalid or do not fit into the queue.
func (s *DTMFSender) Send(text string) bool {
	if !ValidDigits(text) || len(s.queue)+len(text) > Queue {
		return false
	}
	s.queue += text
	return true
}

// DTMFPacket is one telephone-event packet.
type DTMFPacket struct {
	Payload   [4]byte
	Timestamp uint32
	Marker    bool
}

// Next returns the packet of the frame that begins at the timestamp now. If event is false, audio
// must be sent instead. If muted is true, this audio must be silent, because it is the pause after
// a digit.
func (s *DTMFSender) Next(now uint32) (p DTMFPacket, event, muted bool) {
	if s.queue == "" {
		return p, false, false
	}
	if !s.started {
		s.started, s.began, s.phase = true, now, 0
	}
	phase := s.phase
	s.phase++
	if phase >= digitFrames+endPackets-1 {
		if s.phase == digitFrames+endPackets-1+digitPauseFrames {
			s.queue, s.started = s.queue[1:], false
		}
		return p, false, true
	}
	p.Payload[0] = byte(strings.IndexByte(dtmfDigits, s.queue[0]))
	p.Payload[1] = eventVolume
	if phase >= digitFrames-1 {
		p.Payload[1] |= 0x80
	}
	binary.BigEndian.PutUint16(p.Payload[2:], uint16(min(phase+1, digitFrames)*frameSamples))
	p.Timestamp, p.Marker = s.began, phase == 0
	return p, true, false
}
