package consumer_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/ssrf"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/webhook-dispatcher/internal/consumer"
	"ringfence.dev/services/webhook-dispatcher/internal/dispatch"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

type endpoint struct {
	url  string
	mu   sync.Mutex
	seen map[string]int
}

func (e *endpoint) counts() (deliveries, requests int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.seen {
		requests += n
	}
	return len(e.seen), requests
}

// dispatcher returns a dispatcher that polls only after Wake, and the endpoint that it sends to.
func dispatcher(t *testing.T, st *store.Store) (*dispatch.Dispatcher, *endpoint) {
	t.Helper()
	e := &endpoint{seen: map[string]int{}}
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen[req.Header.Get("X-Service-Delivery-Id")]++
	}))
	t.Cleanup(server.Close)
	e.url = server.URL
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := dispatch.NewClient(dispatch.ClientConfig{ExtraCAFile: file, Timeout: 10 * time.Second}, ssrf.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}))
	if err != nil {
		t.Fatal(err)
	}
	d := dispatch.New(st, client, dispatch.Config{
		RetryDelays: []time.Duration{time.Second}, Lease: 20 * time.Second, MaxInFlight: 32, Poll: time.Hour,
		Rule: subscriptions.FailureRule{Failures: 20, Duration: time.Hour, Exhausted: 3},
	}, prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return d, e
}

// Every tenth round publishes an invalid record. The consumer then rolls back the batch and applies
// its records one by one. Every delivery must still be sent only once.
func TestCallEvents_InvalidRecordsDoNotRepeatDeliveriesOfTheirBatch(t *testing.T) {
	t.Parallel()
	h := newSendingFixture(t)
	e, ws := h.endpoint, uuid.New()
	h.subscribeAt(e.url, ws, "call.ringing", "call.completed")
	const rounds = 60
	for i := range rounds {
		call := uuid.New()
		for sequence, kind := range []string{"call.ringing", "call.answered", "call.completed"} {
			f, id := callEvent(call, ws, int32(sequence+1), kind)
			h.publish(kafka.CallEvents, id, call.String(), f)
			if i%4 == 0 {
				h.publish(kafka.CallEvents, id, call.String(), f)         // a second copy of the record
				h.publish(kafka.CallEvents, uuid.New(), call.String(), f) // another record with the same event
			}
		}
		if i%10 == 0 {
			broken, id := callEvent(uuid.New(), ws, 1, "call.completed")
			broken.GetPublic().Body = []byte("not JSON")
			h.publish(kafka.CallEvents, id, uuid.NewString(), broken)
		}
	}
	h.await(`SELECT count(*) FROM dead_letters`, rounds/10)
	h.await(`SELECT count(*) FROM deliveries WHERE status = 'delivered' AND attempts = 1`, 2*rounds)
	h.await(`SELECT count(*) FROM delivery_queue`, 0)
	deliveries, requests := e.counts()
	wantEqual(t, "deliveries that were sent", deliveries, 2*rounds)
	wantEqual(t, "requests", requests, 2*rounds)
}

// The command `webhook-dispatcher replay` calls the same handlers as the consumer. The running
// service must send the queued deliveries.
func TestReplayCommand_QueuesTheDeliveriesOfAParkedRecord(t *testing.T) {
	t.Parallel()
	h, ws, call := newFixture(t), uuid.New(), uuid.New()
	relay := outbox.NewRelay(h.pool, h.bus, prometheus.NewRegistry(), outbox.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = relay.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	h.subscribe(ws, "call.completed")
	newer := &eventv1.CallEvent{CallId: call.String(), WorkspaceId: ws.String()}
	h.publish(kafka.CallEvents, uuid.New(), call.String(), newer)
	h.await(`SELECT count(*) FROM dead_letters`, 1)
	f, id := callEvent(call, ws, 1, "call.completed")
	h.publish(kafka.CallEvents, id, call.String(), f)
	h.await(`SELECT count(*) FROM dead_letters`, 2)
	// the newer record is deleted from the dead-letter queue, so that only the older record is
	// replayed
	if _, err := h.pool.Exec(t.Context(), `DELETE FROM dead_letters WHERE event_id <> $1`, id); err != nil {
		t.Fatal(err)
	}
	box, err := seal.New(seal.Config{Keys: []string{"t=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	if err != nil {
		t.Fatal(err)
	}
	none := consumer.Wakes{
		Queued:      func([]store.Due) {},
		WakeStreams: func([]uuid.UUID) {},
		Dispatcher:  func() {},
		Relay:       func() {},
	}
	handlers := consumer.New(store.New(h.pool, box), none).Handlers()
	applied, parked, err := inbox.NewConsumer("webhook-dispatcher", h.kafka, h.pool, handlers, nil, nil).Replay(t.Context(), kafka.CallEvents.Name)
	if err != nil {
		t.Fatalf("Replay: %v", err)
	}
	wantEqual(t, "applied records", applied, 1)
	wantEqual(t, "records that stay parked", parked, 0)
	h.await(`SELECT count(*) FROM delivery_queue WHERE event_id = $1 AND attempt = 0`, 1, id)
}
