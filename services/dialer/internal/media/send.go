package media

import (
	"fmt"
	"net/netip"
	"time"

	"ringfence.dev/services/dialer/internal/sdp"
)

// sendFrame sends the frame with this number. It returns false if no packet was sent. late is the
// time since the packet was due.
//
// While the stream may send, it sends a packet for every frame. It sends silence as audio: NATs,
// recorders and media timeouts need a steady stream, and not every far end supports comfort noise.
func (s *Stream) sendFrame(frame int64, late time.Duration) bool {
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
	// The marker bit means that the packet does not continue the previous packets (RFC 3551 section
	// 4.1). It is set at the start, after a hold and after a stall, but not each time the agent starts
	// to speak.
	h.Timestamp, h.PayloadType, h.Marker = now, uint8(out.codec), !out.contiguous || frame != out.last+1
	event, isEvent, muted := out.digits.Next(now)
	spoke := false
	if isEvent {
		packet = packet[:headerSize+copy(packet[headerSize:], event.Payload[:])]
		h.Timestamp, h.PayloadType, h.Marker = event.Timestamp, out.event, event.Marker
		out.events++
	} else {
		audio := packet[headerSize:]
		spoke = !muted && s.leg.Source != nil && s.leg.Source.NextFrame(audio)
		if !spoke {
			silent(audio)
		}
		s.schedule.recordSent(!spoke)
		if out.codec == sdp.PCMA {
			ToALaw(audio)
		}
	}
	out.contiguous, out.last = true, frame
	h.SequenceNumber++
	if err := s.transmit(packet, *to); err != nil {
		out.unsent++
		if spoke {
			s.leg.Source.FrameUnsent()
		}
		return false
	}
	out.sent++
	out.late += late
	out.latest = max(out.latest, late)
	return true
}

// transmit encrypts and sends a packet. The caller must hold out.mu.
func (s *Stream) transmit(packet []byte, to netip.AddrPort) error {
	if _, err := s.out.header.MarshalTo(packet); err != nil {
		return fmt.Errorf("write RTP header: %w", err)
	}
	if s.out.seal != nil {
		sealed, err := s.out.seal.Seal(packet)
		if err != nil {
			return fmt.Errorf("encrypt RTP packet: %w", err)
		}
		packet = sealed
	}
	return s.send(packet, to)
}
