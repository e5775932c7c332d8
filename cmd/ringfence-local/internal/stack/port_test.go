package stack

import (
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFree_ReturnsAFreePortBelowTheEphemeralRange(t *testing.T) {
	first, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	if first < lowestPort {
		t.Errorf("first port = %d, want at least %d", first, lowestPort)
	}
	if first > highestPort {
		t.Errorf("first port = %d, want at most %d", first, highestPort)
	}
	second, err := Free(first)
	if err != nil {
		t.Fatal(err)
	}
	if second == first {
		t.Errorf("second port = %d, want another one", second)
	}
}

func TestIsFree_ReturnsFalseForLoopbackAndWildcardListeners(t *testing.T) {
	for _, host := range []string{"127.0.0.1", ""} {
		ln, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		port := ln.Addr().(*net.TCPAddr).Port
		if IsFree(port) {
			t.Errorf("a port that %s listens on counts as free", ln.Addr())
		}
		if who := Holder(port); !strings.Contains(who, "pid ") && who != "another program" {
			t.Errorf("Holder = %q", who)
		}
		_ = ln.Close()
		if !IsFree(port) {
			t.Errorf("port %d is not free after its listener closed", port)
		}
	}
}

func TestHolder_NamesTheProcessThatListensOnThePort(t *testing.T) {
	if _, err := os.Stat("/proc/net/tcp"); err != nil {
		t.Skip("this system has no /proc, so Holder uses lsof")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	self, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if who := Holder(ln.Addr().(*net.TCPAddr).Port); !strings.HasPrefix(who, strings.TrimSpace(string(self))) {
		t.Errorf("Holder = %q, want %s", who, self)
	}
}

func TestAwaitFree_ReturnsFalseIfThePortStaysInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		began := time.Now()
		if AwaitFree(t.Context(), ln.Addr().(*net.TCPAddr).Port) {
			t.Error("Frees = true, want false")
		}
		if got := time.Since(began); got != portReleaseTimeout {
			t.Errorf("Frees took %v, want %v", got, portReleaseTimeout)
		}
	})
}

func TestAwaitFree_WaitsUntilThePortIsReleased(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { // the listener releases the port after its first connection
		defer close(closed)
		if conn, err := ln.Accept(); err == nil {
			_ = conn.Close()
		}
		_ = ln.Close()
	}()
	if !AwaitFree(t.Context(), ln.Addr().(*net.TCPAddr).Port) {
		t.Error("Frees = false, want true")
	}
	<-closed
}
