package peers

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/proto/dialerv1"
)

func peersAt(t *testing.T, peer http.HandlerFunc) *Clients {
	t.Helper()
	server := httptest.NewServer(peer)
	t.Cleanup(server.Close)
	keys, err := serviceauth.New("calls", serviceauth.Config{SigningKey: base64.StdEncoding.EncodeToString(make([]byte, 32))})
	if err != nil {
		t.Fatal(err)
	}
	peers, err := New(Config{ContactsURL: server.URL, WalletURL: server.URL, DialerURL: server.URL}, keys)
	if err != nil {
		t.Fatal(err)
	}
	return peers
}

func withdrawnEvent(w http.ResponseWriter) {
	body, _ := proto.Marshal(&dialerv1.WithdrawResponse{Withdrawn: true})
	w.Header().Set("Content-Type", "application/proto")
	_, _ = w.Write(body)
}

func TestCallPeer_RepeatsTheRequestAfterABrokenConnection(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	peers := peersAt(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(serviceauth.ServiceHeader) == "" {
			t.Error("the question shows no token")
		}
		if asked.Add(1) == 1 {
			panic(http.ErrAbortHandler) // closes the connection, as a killed process does
		}
		withdrawnEvent(w)
	})
	answer, err := peers.Withdraw(t.Context(), &dialerv1.WithdrawRequest{})
	if err != nil {
		t.Fatalf("answer: %v", err)
	}
	if !answer.GetWithdrawn() {
		t.Errorf("answer.GetWithdrawn() = false, want true")
	}
	if asked.Load() != 2 {
		t.Errorf("requests to the peer = %v, want 2", asked.Load())
	}
}

func TestCallPeer_ReturnsUnavailableIfThePeerDoesNotRespond(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	peers := peersAt(t, func(http.ResponseWriter, *http.Request) { <-ended })
	t.Cleanup(func() { close(ended) }) // end the handlers before the server closes, because the server waits for them
	peers.Timeout = 50 * time.Millisecond
	_, err := peers.Hold(t.Context(), &billingv1.HoldRequest{})
	var refusal *apierr.Error
	if !errors.As(err, &refusal) {
		t.Fatalf("err = %v, want a %T", err, refusal)
	}
	if refusal.Status != http.StatusServiceUnavailable {
		t.Errorf("err: refusal.Status = %v, want %v", refusal.Status, http.StatusServiceUnavailable)
	}
	if refusal.RetryAfter == 0 {
		t.Errorf("err: refusal.RetryAfter = 0, want more")
	}
}

func TestCallPeer_ReturnsAnInternalErrorIfThePeerRejectsTheToken(t *testing.T) {
	t.Parallel()
	peers := peersAt(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	_, err := peers.PreCheck(t.Context(), &compliancev1.PreCheckRequest{})
	var refusal *apierr.Error
	if err == nil {
		t.Error("err: PreCheck = nil, want an error")
	} else if errors.As(err, &refusal) {
		t.Error("err: errors.As(err, &refusal) = true, want false")
	}
}
