package media

import (
	"net/netip"
	"testing"
)

var (
	signalled    = netip.MustParseAddrPort("203.0.113.9:40000")
	otherPort    = netip.MustParseAddrPort("203.0.113.9:1024")
	latchUnknown = netip.MustParseAddrPort("192.0.2.66:40000")
	another      = netip.MustParseAddrPort("203.0.113.9:1025")
)

func heard(l *Latch, from netip.AddrPort, number uint16, n int) (count int) {
	for i := range n {
		if l.Admit(from, 7, number+uint16(i)) {
			count++
		}
	}
	return count
}

func signal() *Latch {
	l := new(Latch)
	l.Signal(signalled)
	return l
}

func TestLatch_RefusesUnknownAddresses(t *testing.T) {
	l := signal()
	if n := heard(l, latchUnknown, 0, 1000); n != 0 {
		t.Errorf("heard: n = %v, want 0", n)
	} else if got := l.Target(); got != signalled {
		t.Errorf("heard: l.Target() = %v, want %v", got, signalled)
	}
	l = signal()
	if n := heard(l, signalled, 0, 3); n != 3 {
		t.Errorf("%d of 3 packets of the signalled address are heard", n)
	}
	if n := heard(l, latchUnknown, 3, 1000) + heard(l, otherPort, 3, 1000); n != 0 {
		t.Errorf("n = %v, want 0", n)
	} else if got := l.Target(); got != signalled {
		t.Errorf("l.Target() = %v, want %v", got, signalled)
	}
}

func TestLatch_AcceptsOneOtherPortOfTheSignalledAddress(t *testing.T) {
	l := signal()
	if n := heard(l, otherPort, 65533, 10); n != 10-minProbationPackets+1 {
		t.Errorf("heard: n = %v, want %v", n, 10-minProbationPackets+1)
	} else if got := l.Target(); got != otherPort {
		t.Errorf("heard: l.Target() = %v, want %v", got, otherPort)
	}
	third := netip.MustParseAddrPort("203.0.113.9:1026")
	if n := heard(l, third, 0, 100); n != 0 {
		t.Errorf("accepted packets of a third port = %d, want 0", n)
	}
	if n := heard(l, signalled, 0, 1); n != 1 {
		t.Errorf("the signalled address is not accepted: n = %v, want 1", n)
	} else if got := l.Target(); got != signalled {
		t.Errorf("the signalled address is not accepted: l.Target() = %v, want %v", got, signalled)
	}
	if n := heard(l, otherPort, 9, 100); n != 0 {
		t.Errorf("accepted packets of the other port = %d, want 0", n)
	}
}

func TestLatch_AcceptsTheFirstPortWithConsecutivePackets(t *testing.T) {
	l := signal()
	for n := range uint16(100) { // two sources alternate; the second one sends random sequence numbers
		if l.Admit(otherPort, 7, n) {
			t.Fatal("accepted without a stream: l.Admit(otherPort, 7, n) = true, want false")
		}
		if l.Admit(another, 8, n*31) {
			t.Fatal("accepted without a stream: l.Admit(another, 8, n*31) = true, want false")
		}
	}
	for n := range uint16(200) {
		if n < 100 && l.Admit(another, 8, n*31) || n >= 100 && l.Admit(another, uint32(n), n) {
			t.Fatal("a source with random numbers is accepted")
		}
	}
	if n := heard(l, otherPort, 500, 10); n != 10-minProbationPackets+1 {
		t.Errorf("heard: n = %v, want %v", n, 10-minProbationPackets+1)
	} else if got := l.Target(); got != otherPort {
		t.Errorf("heard: l.Target() = %v, want %v", got, otherPort)
	}
	if n := heard(l, another, 0, 1000); n != 0 {
		t.Errorf("heard: n = %v, want 0", n)
	} else if got := l.Target(); got != otherPort {
		t.Errorf("heard: l.Target() = %v, want %v", got, otherPort)
	}
}

func TestLatch_NewSignalledAddressResetsTheLatch(t *testing.T) {
	l := signal()
	heard(l, otherPort, 0, 10)
	l.Signal(signalled) // a session refresh repeats the address
	if l.Target() != otherPort {
		t.Error("a refresh reset the latch")
	}
	l.Signal(latchUnknown)
	switch {
	case l.Target() != latchUnknown:
		t.Errorf("l.Target() = %v, want %v", l.Target(), latchUnknown)
	case heard(l, otherPort, 10, 10) != 0:
		t.Error("heard(l, otherPort, 10, 10) is not 0")
	case heard(l, latchUnknown, 0, 1) != 1:
		t.Error("heard(l, latchUnknown, 0, 1) is not 1")
	}
	l.Signal(netip.AddrPort{}) // a hold signals the address 0.0.0.0
	if l.Target().IsValid() {
		t.Error("an unknown sender: l.Target().IsValid() = true, want false")
	} else if got := heard(l, latchUnknown, 1, 10); got != 0 {
		t.Errorf("an unknown sender: heard(l, latchUnknown, 1, 10) = %v, want 0", got)
	}
}
