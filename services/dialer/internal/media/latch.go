// Package latch decides whose packets a stream hears and where ours go: symmetric RTP that cannot be hijacked. Heard is the address of the description, or once another port of the same IP
// (a far end behind a NAT that keeps its address). It knows addresses and numbers of packets only.

package media

import "net/netip"

// probation is how many packets in a row, of one source and in order, make a stream of an address that was not signalled. A spray or a stray packet is none.
const probation = 5

// Latch is one stream's. The zero Latch hears nobody. Not safe for use by several goroutines.
type Latch struct {
	signalled netip.AddrPort
	locked    netip.AddrPort // invalid: nobody yet

	candidate netip.AddrPort
	ssrc      uint32
	next      uint16
	streak    int
}

// Signal says where the far end wants its audio, by its newest description. The same again changes nothing; another address begins anew.
func (l *Latch) Signal(address netip.AddrPort) {
	if address == l.signalled {
		return
	}
	*l = Latch{signalled: address}
}

// Target is where ours go: to the far end that was latched to, before that to the signalled address.
func (l *Latch) Target() netip.AddrPort {
	if l.locked.IsValid() {
		return l.locked
	}
	return l.signalled
}

// Knows says whether a packet from there would be heard at once or might be in time: others need not be looked at.
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

// Admit says whether a sound packet is heard. The signalled address is believed at once, and whatever came before; any other address must be known,
// prove itself, and is then the one for good.
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
