package media

import (
	"errors"
	"net/netip"
	"time"

	"ringfence.dev/services/dialer/internal/sdp"
)

// receivePacket handles a received packet. It overwrites the bytes of packet.
func (s *Stream) receivePacket(packet []byte, from netip.AddrPort, now time.Duration) { //nolint:cyclop // packet kinds
	in := &s.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed || in.direction == "" {
		return
	}
	if !in.latch.Knows(from) {
		in.stats.UnknownSources++
		return
	}
	offset, err := in.header.Unmarshal(packet)
	if cap(in.header.Extensions) > 16 {
		in.header.Extensions = nil // release the memory of a packet with many extensions
	}
	if err != nil || in.header.Version != 2 {
		in.stats.Malformed++
		return
	}
	if in.open != nil {
		switch packet, err = in.open.Open(packet, in.header.SSRC); {
		case errors.Is(err, ErrForged):
			in.stats.Forged++
			return
		case err != nil:
			in.stats.Replayed++
			return
		}
	}
	payload := packet[min(offset, len(packet)):]
	if in.header.Padding {
		if len(payload) == 0 || int(payload[len(payload)-1]) > len(payload) || payload[len(payload)-1] == 0 {
			in.stats.Malformed++
			return
		}
		payload = payload[:len(payload)-int(payload[len(payload)-1])]
	}
	if !in.latch.Admit(from, in.header.SSRC, in.header.SequenceNumber) {
		in.stats.UnknownSources++
		return
	}
	s.updateTarget()
	in.heard, in.alive, in.timeoutReported = true, now, false
	kind := in.accepts[in.header.PayloadType&0x7F]
	// Some gateways send telephone-events with a separate SSRC. These packets have their own sequence
	// numbers.
	if kind == event && in.sourced && in.ssrc != in.header.SSRC {
		s.receiveKey(payload, now)
		return
	}
	if !in.sourced || in.ssrc != in.header.SSRC {
		if in.sourced {
			in.stats.Sources++
		}
		in.sourced, in.ssrc = true, in.header.SSRC
		in.buffer.NewSource()
	}
	arrival, ok := in.buffer.Count(in.header.SequenceNumber)
	if !ok || !in.direction.Receives() {
		return
	}
	switch kind {
	case foreign:
		in.stats.Foreign++
	case aLaw:
		FromALaw(payload)
		in.buffer.Audio(arrival, in.header.Timestamp, payload, now)
	case muLaw:
		in.buffer.Audio(arrival, in.header.Timestamp, payload, now)
	case event:
		s.receiveKey(payload, now)
	}
}

// keyTime is the shortest duration of a key press including the pause after it: 80 ms (ITU-T Q.24).
// After a stall, up to maxKeys key presses can arrive together.
const (
	keyTime = 80 * time.Millisecond
	maxKeys = 20
)

func (s *Stream) receiveKey(payload []byte, now time.Duration) {
	in := &s.in
	if !in.direction.Receives() {
		return
	}
	if in.pressing != in.header.SSRC {
		in.pressing = in.header.SSRC
		in.digits.Restart()
	}
	if digit, begins := in.digits.Hear(payload, in.header.Timestamp, in.header.Marker, now); begins {
		if !in.pressed.Pass(keyTime, maxKeys*keyTime, now) {
			in.stats.Excess++
			return
		}
		in.stats.Digits++
		if s.leg.Sink != nil {
			s.leg.Sink.HearDigit(digit)
		}
	}
}

// fillGaps passes silence for overdue frames and reports a timeout. It does nothing while the
// goroutine that reads packets holds the lock, because the pacing loop must not wait. The loop
// calls fillGaps again after 20 ms.
func (s *Stream) fillGaps(now time.Duration) {
	in := &s.in
	if !in.mu.TryLock() {
		return
	}
	defer in.mu.Unlock()
	if in.closed || in.direction == "" {
		return
	}
	in.buffer.Elapse(now)
	limit := s.timeout()
	if limit < 0 || in.timeoutReported || now-in.alive < limit || in.direction != sdp.Both {
		return
	}
	in.timeoutReported = true
	in.stats.Timeouts++
	if s.leg.TimedOut != nil {
		go s.leg.TimedOut()
	}
}
