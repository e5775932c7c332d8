package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// onFirstWrite runs a function when it receives the first line.
type onFirstWrite struct {
	once sync.Once
	do   func()
}

func (w *onFirstWrite) Write(line []byte) (int, error) {
	w.once.Do(w.do)
	return len(line), nil
}

// closedAddress returns an address at which no program listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

func TestSend_RepeatsFailedDials(t *testing.T) {
	t.Parallel()
	requests := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(server.Close)
	address := closedAddress(t)
	listen := &onFirstWrite{do: func() {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		server.Listener = listener
		server.Start()
	}}
	client := apiClient{base: "http://" + address, dialWindow: time.Minute, out: listen}
	var got struct{ ID string }
	if err := client.send(t.Context(), http.MethodPost, "/", `{"id":"one"}`, &got); err != nil {
		t.Fatal(err)
	}
	if got.ID != "one" {
		t.Errorf("id = %q, want %q", got.ID, "one")
	}
	if requests != 1 {
		t.Errorf("requests = %d, want 1", requests)
	}
}

func TestSend_GivesUpAfterTheDialWindow(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	client := apiClient{base: "http://" + closedAddress(t), out: &out}
	err := client.send(t.Context(), http.MethodGet, "/", "", nil)
	if err == nil {
		t.Fatal("send succeeded, want an error")
	}
	if want := "no connection to " + client.base; !strings.Contains(err.Error(), want) {
		t.Errorf("error = %q, want %q in it", err, want)
	}
}

// A request that reached the API can have an effect, so it is not sent again.
func TestSend_DoesNotRepeatARequestThatWasSent(t *testing.T) {
	t.Parallel()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		requests++
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(server.Close)
	client := apiClient{base: server.URL, dialWindow: time.Minute, out: io.Discard}
	if err := client.send(t.Context(), http.MethodPost, "/", "{}", nil); err == nil {
		t.Error("send succeeded, want an error")
	}
	if requests != 1 {
		t.Errorf("requests = %d, want 1", requests)
	}
}
