package port_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence.dev/libs/polltest"
	"ringfence.dev/libs/port"
)

func TestOpen_TakenPortNamesPortAndVariable(t *testing.T) {
	first, err := port.Open(t.Context(), "127.0.0.1:0", "HTTP_ADDR", false)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	addr := first.Addr().String()
	_, number, _ := net.SplitHostPort(addr)
	_, err = port.Open(t.Context(), addr, "HTTP_ADDR", false)
	if err == nil {
		t.Fatalf("second Open: err = nil, want an error")
	}
	if !strings.Contains(err.Error(), "port "+number) {
		t.Errorf("second Open: err.Error() = %q, want it to contain %q", err.Error(), "port "+number)
	}
	if !strings.Contains(err.Error(), "HTTP_ADDR") {
		t.Errorf("second Open: err.Error() = %q, want it to contain %q", err.Error(), "HTTP_ADDR")
	}
}

func TestOpen_ReplicasShareAPort(t *testing.T) {
	first, err := port.Open(t.Context(), "127.0.0.1:0", "HTTP_ADDR", true)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := port.Open(t.Context(), first.Addr().String(), "HTTP_ADDR", true)
	if err != nil {
		t.Fatalf("second Open = %v, want a shared port", err)
	}
	_ = second.Close()
}

// TestDoor_ShutFailsNobody: clients connect without pause while one of two doors on a port is shut; nobody's connection is reset, and the other
// door gets all that come later.
func TestDoor_ShutFailsNobody(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can shut a door")
	}
	first, err := port.Open(t.Context(), "127.0.0.1:0", "HTTP_ADDR", true)
	if err != nil {
		t.Fatal(err)
	}
	second, err := port.Open(t.Context(), first.Addr().String(), "HTTP_ADDR", true)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	addr := first.Addr().String()
	shut := make(chan struct{})
	go greet(first, 2*time.Millisecond, func() { close(shut) }) // slow: some always stand in the queue
	go greet(second, 0, func() {})

	stop := make(chan struct{})
	var mu sync.Mutex
	greeted, faults := map[string]int{}, []error(nil)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				said, err := knock(addr)
				mu.Lock()
				if err != nil {
					faults = append(faults, err)
				}
				greeted[said]++
				mu.Unlock()
			}
		})
	}
	many := func(n int) {
		t.Helper()
		polltest.Until(t, fmt.Sprintf("%d clients are served", n), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return greeted["hello"] >= n
		})
	}
	many(200)
	if !first.Shut() {
		t.Fatal("the door was not shut")
	}
	select {
	case <-shut: // greet closes the listener behind the last
	case <-time.After(polltest.Timeout):
		t.Error("they still come in")
		_ = first.Close()
	}
	mu.Lock()
	before := greeted["hello"]
	mu.Unlock()
	many(before + 200)
	close(stop)
	clients.Wait()
	if len(faults) > 0 {
		t.Errorf("%d clients failed of %d: %v", len(faults), greeted["hello"], faults[0])
	}
}

// greet says hello to everybody who comes, after a while, and closes the door behind the last.
func greet(door *port.Door, each time.Duration, ended func()) {
	defer ended()
	defer door.Close()
	for {
		conn, err := door.Accept()
		if err != nil {
			return
		}
		if each > 0 {
			<-time.After(each)
		}
		_, _ = io.WriteString(conn, "hello")
		_ = conn.Close()
	}
}

func knock(addr string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, polltest.Timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	said, err := io.ReadAll(conn)
	if err == nil && string(said) != "hello" {
		err = errors.New("nobody said hello")
	}
	if err != nil {
		return "", fmt.Errorf("after %q: %w", said, err)
	}
	return string(said), nil
}
