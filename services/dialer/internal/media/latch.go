package media

import "net/netip"

// probation is how many consecutive packets of one source, in order, an address must send before
// its packets are accepted. Stray packets and a scan do not send that.
const probation = 5

// Latch decides which packets a stream accepts and where its own packets go. This is symmetric RTP
// that cannot be hijacked. It accepts the address of the far end's description, or one other port
// of the same IP address, for a far end behind a NAT. The zero Latch accepts nothing. It is not
// safe for concurrent use.
type Latch struct {
	signalled netip.AddrPort
	locked    netip.AddrPort // invalid: none yet

	candidate netip.AddrPort
	ssrc      uint32
	next      uint16
	streak    int
}

// Signal sets the far end's address of the newest description. A new address resets the latch; the
// same one has no effect.
func (l *Latch) Signal(address netip.AddrPort) {
	if address == l.signalled {
		return
	}
	*l = Latch{signalled: address}
}

// Target returns the destination of packets: the accepted address, or before that the signalled
// one.
func (l *Latch) Target() netip.AddrPort {
	if l.locked.IsValid() {
		return l.locked
	}
	return l.signalled
}

// Knows reports whether packets from the address are accepted, or can be later. Other packets need
// not be read.
func (l *Latch) Knows(from netip.AddrPort) bool {
	switch {
	case !l.signalled.IsValid():
		return false
	case from == l.locked || from == l.signalled:
		return true
	case l.locked.IsValid():
		return false
	}
	return from.Addr() == l.signalled.Addr()
}

// Admit reports whether a valid packet is accepted. The signalled address is accepted immediately
// and always. Another address must first pass the probation, and is then the only other one.
func (l *Latch) Admit(from netip.AddrPort, ssrc uint32, number uint16) bool {
	switch {
	case !l.Knows(from):
		return false
	case from == l.locked:
		return true
	case from == l.signalled:
		l.locked = from
		return true
	}
	if from == l.candidate && ssrc == l.ssrc && number == l.next {
		l.streak++
	} else {
		l.candidate, l.ssrc, l.streak = from, ssrc, 1
	}
	l.next = number + 1
	if l.streak < probation {
		return false
	}
	l.locked = from
	return true
}
