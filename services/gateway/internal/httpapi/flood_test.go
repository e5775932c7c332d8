package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/gateway/internal/proxy"
)

// TestPublic_FloodUsesLittleMemoryAndLeavesNoGoroutines is not parallel, because it counts the
// goroutines and the memory of the process.
func TestPublic_FloodUsesLittleMemoryAndLeavesNoGoroutines(t *testing.T) {
	r := newRig(t)
	key, _ := r.key(r.workspace(`"rate_limit_per_minute":100000`), "write")
	addr := r.listen()
	with := "Host: x\r\nAuthorization: Bearer " + key + "\r\n"
	// this request opens connections to the fake services; the connections stay open
	sendRaw(t, addr, "GET /v1/calls HTTP/1.1\r\n"+with+"\r\n", 1)
	before, allocated := waitForGoroutines(t, 0), allocatedBytes()
	const clients = 24
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { sendHostile(addr, with, i) })
	}
	all.Wait()
	grown := allocatedBytes() - allocated
	t.Logf("%d clients: %d KiB allocated for each", clients, grown/clients>>10)
	if limit := uint64(clients * 8 << 20); grown > limit {
		t.Errorf("%d clients of 16 MiB each made us allocate %d MiB, want %d at limit", clients, grown>>20, limit>>20)
	}
	if after := waitForGoroutines(t, before+8); after > before+8 {
		buffer := make([]byte, 1<<20)
		t.Errorf("%d goroutines, before %d:\n%s", after, before, buffer[:runtime.Stack(buffer, true)])
	}
	if n := len(r.requestsTo(proxy.Calls)); n != 1 {
		t.Errorf("calls received %d requests, want once", n)
	}
	if got, _ := sendRaw(t, addr, "GET /v1/calls HTTP/1.1\r\n"+with+"\r\n", 1); len(got) != 1 {
		t.Errorf("afterwards: length of got = %d, want 1", len(got))
	} else if got[0].status != http.StatusOK {
		t.Errorf("afterwards: got[0].status = %v, want %v", got[0].status, http.StatusOK)
	}
}

// sendHostile acts as one hostile client. It either sends 16 MiB or aborts its request, and it
// reads as little as possible.
func sendHostile(addr, with string, i int) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(testkit.Timeout))
	begin := []string{
		"POST /v1/calls HTTP/1.1\r\n" + with + "Transfer-Encoding: chunked\r\n\r\n1000000\r\n",
		"POST /v1/calls HTTP/1.1\r\n" + with + "Content-Length: 16777216\r\n\r\n",
		"GET /v1/calls HTTP/1.1\r\nX: ",
		"GET /v1/calls?q=",
		"POST /v1/calls HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1000000\r\n",
		"POST /v1/calls HTTP/1.1\r\n" + with + fmt.Sprintf("Content-Length: %d\r\n\r\n", httpserver.MaxBody),
	}[i%6]
	if _, err := io.WriteString(conn, begin); err != nil {
		return
	}
	if i%6 == 5 {
		return // the client announces a body but disconnects before it sends the body
	}
	block := strings.Repeat("x", 64<<10)
	for range 256 {
		if _, err := io.WriteString(conn, block); err != nil {
			return
		}
	}
	_, _ = io.CopyN(io.Discard, conn, 1<<10)
}

func allocatedBytes() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// waitForGoroutines waits until at most limit goroutines run, and returns their number. If limit is
// 0, it waits until the number is stable.
func waitForGoroutines(t *testing.T, limit int) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
	defer cancel()
	http.DefaultClient.CloseIdleConnections()
	last, same := 0, 0
	for n := runtime.NumGoroutine(); ; n = runtime.NumGoroutine() {
		if same++; n != last {
			last, same = n, 0
		}
		if n <= limit || limit == 0 && same > 20 {
			return n
		}
		select {
		case <-ctx.Done():
			return n
		case <-time.After(20 * time.Millisecond):
		}
	}
}
