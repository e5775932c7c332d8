package stack

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
)

type backend struct {
	*httptest.Server
	ready atomic.Bool
}

func newBackend(t *testing.T, name string) *backend {
	t.Helper()
	b := &backend{}
	b.ready.Store(true)
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" && !b.ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(b.Close)
	return b
}

func balance(t *testing.T, backends ...*backend) (get func() string) {
	t.Helper()
	var replicas []Replica
	for _, b := range backends {
		replicas = append(replicas, Replica{Addr: strings.TrimPrefix(b.URL, "http://"), Probe: b.URL + "/readyz"})
	}
	b, err := Listen(t.Context(), "127.0.0.1:0", replicas)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); b.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func() string {
		t.Helper()
		response, err := client.Get("http://" + b.listener.Addr().String() + "/")
		if err != nil {
			t.Errorf("GET through the balancer: %v", err)
			return ""
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Errorf("read the response: %v", err)
		}
		return string(text)
	}
}

func responsesByBackend(get func() string, n int) map[string]int {
	counts := map[string]int{}
	for range n {
		counts[get()]++
	}
	return counts
}

func TestBalancer_DistributesConnectionsOverReplicas(t *testing.T) {
	t.Parallel()
	get := balance(t, newBackend(t, "a"), newBackend(t, "b"))
	testkit.Until(t, "both replicas respond", func() bool { return len(responsesByBackend(get, 10)) == 2 })
}

func TestBalancer_UnreadyReplicaGetsNoConnection(t *testing.T) {
	t.Parallel()
	a, b := newBackend(t, "a"), newBackend(t, "b")
	get := balance(t, a, b)
	testkit.Until(t, "both replicas respond", func() bool { return len(responsesByBackend(get, 10)) == 2 })
	a.ready.Store(false)
	testkit.Until(t, "only b responds", func() bool { return responsesByBackend(get, 10)["a"] == 0 })
	if got := responsesByBackend(get, 20)["b"]; got != 20 {
		t.Errorf("responses of the ready replica = %d, want 20", got)
	}
}

func TestBalancer_DeadReplicaFailsNoRequest(t *testing.T) {
	t.Parallel()
	a, b := newBackend(t, "a"), newBackend(t, "b")
	get := balance(t, a, b)
	testkit.Until(t, "both replicas respond", func() bool { return len(responsesByBackend(get, 10)) == 2 })
	a.Close()
	if got := responsesByBackend(get, 20)["b"]; got != 20 {
		t.Errorf("responses of the other replica = %d, want 20", got)
	}
}

func TestBalancer_TriesAllReplicasIfNoneIsReady(t *testing.T) {
	t.Parallel()
	a := newBackend(t, "a")
	a.ready.Store(false)
	get := balance(t, a)
	if got := get(); got != "a" {
		t.Errorf("response = %q, want that of the replica", got)
	}
}

func TestBalancer_ClosesOpenConnectionsWhenItEnds(t *testing.T) {
	t.Parallel()
	a := newBackend(t, "a")
	b, err := Listen(t.Context(), "127.0.0.1:0", []Replica{{Addr: strings.TrimPrefix(a.URL, "http://"), Probe: a.URL}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); b.Run(ctx) }()
	// http.Get keeps its connection open for a further request. The end of the balancer must close
	// this connection.
	response, err := http.Get("http://" + b.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	cancel()
	select {
	case <-ended:
	case <-time.After(testkit.Timeout):
		t.Error("Run does not end while a connection is open")
	}
}

func TestBalancer_KeepsTheAddressOfALoopbackClient(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RemoteAddr)
	}))
	t.Cleanup(server.Close)
	b, err := Listen(t.Context(), "127.0.0.1:0", []Replica{{Addr: strings.TrimPrefix(server.URL, "http://"),
		Probe: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); b.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	local, err := net.ResolveTCPAddr("tcp", "127.0.0.77:0")
	if err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{LocalAddr: local}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	response, err := client.Get("http://" + b.listener.Addr().String())
	if err != nil {
		t.Skipf("this machine has only one loopback address: %v", err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(got), "127.0.0.77:") {
		t.Errorf("address of the client = %s, want 127.0.0.77", got)
	}
}
