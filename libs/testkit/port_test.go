package testkit_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"ringfence.dev/libs/testkit"
)

const asking = "LOOPBACK_CLAIMS"

// A test starts this test binary as a child process with a port in the environment. TestMain then
// claims the port, and the exit status of the child process is the result of the claim.
func TestMain(m *testing.M) {
	port, err := strconv.Atoi(os.Getenv(asking))
	switch {
	case err != nil:
		os.Exit(m.Run())
	case testkit.Claim(port):
		os.Exit(0)
	}
	os.Exit(1)
}

func TestPort_ReturnsEachPortOnce(t *testing.T) {
	var mu sync.Mutex
	var askers sync.WaitGroup
	given := map[int]bool{}
	for range 8 {
		askers.Go(func() {
			for range 25 {
				port, err := testkit.Port()
				if err != nil {
					t.Errorf("Port: %v", err)
					return
				}
				mu.Lock()
				if given[port] {
					t.Errorf("Port: given[port] = true, want false")
				}
				if port < 10_000 {
					t.Errorf("Port: port = %v, want at least 10_000", port)
				}
				if port > 19_996 {
					t.Errorf("Port: port = %v, want at most 19_996", port)
				}
				if port%2 != 0 {
					t.Errorf("Port: port%%2 = %v, want 0", port%2)
				}
				given[port] = true
				mu.Unlock()
			}
		})
	}
	askers.Wait()
}

func TestPort_ReturnsTheFirstOfFourFreePorts(t *testing.T) {
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	for n := port; n < port+4; n++ {
		at := fmt.Sprintf("127.0.0.1:%d", n)
		udp, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = udp.Close() }()
		tcp, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tcp.Close() }()
	}
}

func TestOpen_ReturnsTrueOnlyForPortsInUse(t *testing.T) {
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	if testkit.Open("udp", port) {
		t.Error(`a port that was just given away is open: loopback.Open("udp", port) = true, want false`)
	} else if testkit.Open("tcp", port) {
		t.Error(`a port that was just given away is open: loopback.Open("tcp", port) = true, want false`)
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	udp, err := net.ListenPacket("udp4", at)
	if err != nil {
		t.Fatal(err)
	}
	if !testkit.Open("udp", port) || testkit.Open("tcp", port) {
		t.Errorf("open for UDP %v, for TCP %v, want UDP alone", testkit.Open("udp", port), testkit.Open("tcp", port))
	}
	_ = udp.Close()
	tcp, err := net.Listen("tcp4", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tcp.Close() }()
	if testkit.Open("udp", port) || !testkit.Open("tcp", port) {
		t.Errorf("open for UDP %v, for TCP %v, want TCP alone", testkit.Open("udp", port), testkit.Open("tcp", port))
	}
}

func TestClaim_ReservesThePortUntilTheProcessEnds(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a claim is kept on Linux only")
	}
	elsewhere := func(port int) bool {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", asking, port))
		return cmd.Run() == nil
	}
	mine, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	if elsewhere(mine) {
		t.Error("another process claims what is ours")
	}
	if testkit.Claim(mine) {
		t.Error("it was claimed twice in one process")
	}
	theirs, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !elsewhere(theirs + 1) {
			t.Error("the port of a process that has ended is still reserved")
		}
	}
}
