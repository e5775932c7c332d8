package media

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

var loopback = netip.MustParseAddr("127.0.0.1")

func vacant(t *testing.T, ports int) (low, high uint16) {
	t.Helper()
	for low = 20001; low < 60000; low += uint16(2*ports) + 2 {
		p, err := NewPortPool(loopback, low, low+uint16(2*ports), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		taken := 0
		for ; taken < ports; taken++ {
			conn, err := p.Take()
			if err != nil {
				break
			}
			defer p.Close()
			p.Give(conn)
		}
		p.Close()
		if taken == ports {
			return low, low + uint16(2*ports)
		}
	}
	t.Fatal("no free range")
	return 0, 0
}

func number(conn *net.UDPConn) uint16 { return conn.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

func TestPortPool_AssignsEachPortToOneStream(t *testing.T) {
	low, high := vacant(t, 4)
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPortPool(loopback, low, high, Rest)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		seen := map[uint16]bool{}
		var conns []*net.UDPConn
		for range 4 {
			conn, err := p.Take()
			if err != nil {
				t.Fatal(err)
			}
			switch n := number(conn); {
			case n%2 != 0:
				t.Errorf("n %% 2 = %v, want 0", n%2)
			case n < low:
				t.Errorf("n = %v, want at least %v", n, low)
			case n > high:
				t.Errorf("n = %v, want at most %v", n, high)
			case seen[n]:
				t.Error("seen[n] = true, want false")
			}
			seen[number(conn)] = true
			conns = append(conns, conn)
		}
		if _, err := p.Take(); !errors.Is(err, ErrNoPort) {
			t.Errorf("Take of a fifth port of four = %v", err)
		}
		given := number(conns[2])
		p.Give(conns[2])
		time.Sleep(Rest - time.Millisecond)
		if _, err := p.Take(); !errors.Is(err, ErrNoPort) {
			t.Errorf("a resting port was given out: Take = %v, want %v", err, ErrNoPort)
		} else if got := p.Resting(); got != 1 {
			t.Errorf("a resting port was given out: p.Resting() = %v, want 1", got)
		}
		if other, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, given))); err == nil {
			t.Error("a resting port is not bound")
			_ = other.Close()
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		conn, err := p.Take()
		switch {
		case err != nil:
			t.Errorf("error = %v, want none", err)
		case number(conn) != given:
			t.Errorf("number(conn) = %v, want %v", number(conn), given)
		case p.Resting() != 0:
			t.Errorf("p.Resting() = %v, want 0", p.Resting())
		}
		for _, c := range append(conns[:2:2], conns[3], conn) {
			p.Give(c)
		}
	})
}

func TestPortPool_SkipsAPortThatAnotherProgramUses(t *testing.T) {
	low, high := vacant(t, 2)
	other, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, low+low%2)))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p, err := NewPortPool(loopback, low, high, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn, err := p.Take()
	if err != nil {
		t.Fatalf("Take: %v", err)
	}
	if number(conn) == number(other) {
		t.Fatalf("number(conn) = %v, want another value", number(conn))
	}
	if _, err := p.Take(); !errors.Is(err, ErrNoPort) {
		t.Errorf("%v, want no free port", err)
	}
	p.Close()
	if p.Give(conn); p.Resting() != 0 {
		t.Error("a closed pool keeps a port")
	}
	if _, err := NewPortPool(loopback, 4001, 4001, Rest); err == nil {
		t.Error("a range without an even port is taken")
	}
}
