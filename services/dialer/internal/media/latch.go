package media

import "net/netip"

// probation is the number of consecutive packets of one source, in order, that an address must send
// before its packets are accepted. Stray packets and a port scan do not fulfil this condition.
const probation = 5

// Latch decides which packets a stream accepts and to which address its own packets go. This is
// symmetric RTP that an attacker cannot hijack. Latch accepts the address of the far end's
// description, or one other port of the same IP address, for a far end behind a NAT. The zero Latch
// accepts no packets. Latch is not safe for concurrent use.
type Latch struct {
	signalled netip.AddrPort
	locked    netip.AddrPort // accepted address; invalid if there is none yet

	candidate netip.AddrPort
	ssrc      uint32
	next      uint16
	streak    int
}

// Signal sets the far end's address from the newest description. A new address resets the latch. An
// unchanged address has no effect.
func (l *Latch) Signal(address netip.AddrPort) {
	if address == l.signalled {
		return
	}
	*l = Latch{signalled: address}
}

// Target returns the destination of sent packets: the accepted address, or the signalled address if
// no address is accepted yet.
func (l *Latch) Target() netip.AddrPort {
	if l.locked.IsValid() {
		return l.locked
	}
	return l.signalled
}

// Knows reports whether packets from the address are accepted now or can be accepted later. The
// stream ignores other packets.
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

// Admit reports whether a valid packet is accepted. Packets from the signalled address are always
// accepted. Another address is accepted after the probation. At most one other address is accepted.
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
