package media

import "net/netip"

// minProbationPackets is how many consecutive packets another port must send before it is
// accepted. Misdirected packets and port scans are not consecutive.
const minProbationPackets = 5

// Latch decides from which addresses a stream accepts packets, and to which address it sends. It
// implements symmetric RTP with limits, so that an attacker cannot redirect the audio.
//
// It accepts the address in the far end's SDP and, because of NATs, one other port of the same IP
// address. The zero Latch accepts no packets. Latch is not safe for concurrent use.
type Latch struct {
	signalled       netip.AddrPort
	acceptedAddress netip.AddrPort // invalid if no address is accepted yet

	candidate netip.AddrPort
	ssrc      uint32
	next      uint16
	streak    int
}

// Signal sets the far end's address from its newest SDP. A changed address resets the latch. An
// unchanged address has no effect.
func (l *Latch) Signal(address netip.AddrPort) {
	if address == l.signalled {
		return
	}
	*l = Latch{signalled: address}
}

// Target returns the address to which packets are sent: the accepted address or, until one is
// accepted, the address in the SDP.
func (l *Latch) Target() netip.AddrPort {
	if l.acceptedAddress.IsValid() {
		return l.acceptedAddress
	}
	return l.signalled
}

// Knows reports whether the latch accepts packets from the address now, or can accept them later.
// The stream ignores all other packets.
func (l *Latch) Knows(from netip.AddrPort) bool {
	switch {
	case !l.signalled.IsValid():
		return false
	case from == l.acceptedAddress || from == l.signalled:
		return true
	case l.acceptedAddress.IsValid():
		return false
	}
	return from.Addr() == l.signalled.Addr()
}

// Admit reports whether the latch accepts a valid packet. Packets from the address in the SDP are
// always accepted. Packets from one other port are accepted after the probation.
func (l *Latch) Admit(from netip.AddrPort, ssrc uint32, number uint16) bool {
	switch {
	case !l.Knows(from):
		return false
	case from == l.acceptedAddress:
		return true
	case from == l.signalled:
		l.acceptedAddress = from
		return true
	}
	if from == l.candidate && ssrc == l.ssrc && number == l.next {
		l.streak++
	} else {
		l.candidate, l.ssrc, l.streak = from, ssrc, 1
	}
	l.next = number + 1
	if l.streak < minProbationPackets {
		return false
	}
	l.acceptedAddress = from
	return true
}
