package media

import (
	"time"

	"ringfence.dev/services/dialer/internal/g711"
	"ringfence.dev/services/dialer/internal/sdp"
)

// say sends what belongs into a frame's time, late by so much; false: nothing. While we may send, each frame has a packet: silence is sent as such, since
// NATs, recorders and media timeouts of far ends want a steady stream, and comfort noise is not understood everywhere. So the marker, which means that
// the packets before it were not contiguous (RFC 3551 4.1), stands at the beginning, after a hold and after a stall, not wherever the agent begins to speak.
func (s *Stream) say(frame int64, late time.Duration) bool {
	out := &s.out
	out.mu.Lock()
	defer out.mu.Unlock()
	to := s.target.Load()
	if to == nil || !out.direction.Sends() {
		out.contiguous = false
		return false
	}
	now := out.base + uint32(frame)*Frame
	packet := out.packet[:headerSize+Frame]
	h := &out.header
	h.Timestamp, h.PayloadType, h.Marker = now, uint8(out.codec), !out.contiguous || frame != out.last+1
	event, isEvent, muted := out.digits.Next(now)
	if isEvent {
		packet = packet[:headerSize+copy(packet[headerSize:], event.Payload[:])]
		h.Timestamp, h.PayloadType, h.Marker = event.Timestamp, out.event, event.Marker
		out.events++
	} else {
		audio := packet[headerSize:]
		spoke := !muted && s.leg.Source != nil && s.leg.Source.NextFrame(audio)
		if !spoke {
			silent(audio)
		}
		s.moment.said(!spoke)
		if out.codec == sdp.PCMA {
			g711.ToALaw(audio)
		}
	}
	out.contiguous, out.last = true, frame
	h.SequenceNumber++
	if _, err := h.MarshalTo(packet); err != nil {
		out.unsent++
		return false
	}
	if out.seal != nil {
		sealed, err := out.seal.Seal(packet)
		if err != nil {
			out.unsent++
			return false
		}
		packet = sealed
	}
	if err := s.send(packet, *to); err != nil {
		out.unsent++
		return false
	}
	out.sent++
	out.late += late
	out.latest = max(out.latest, late)
	return true
}
