package dispatch_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/ssrf"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/dispatch"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

const schema = "webhook_dispatcher"

type fixture struct {
	t         *testing.T
	pool      *pgxpool.Pool
	box       *seal.Box
	store     *store.Store
	workspace uuid.UUID
	caFile    string
	client    dispatch.ClientConfig
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: store.Migrations})
	box, err := seal.New(seal.Config{Keys: []string{"t=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &fixture{t: t, pool: pool, box: box, store: store.New(pool, box), workspace: uuid.Must(uuid.NewV7()), caFile: file,
		client: dispatch.ClientConfig{ExtraCAFile: file, Timeout: 10 * time.Second}}
}

// ingestAndAdd ingests the events and passes their subscriptions to the dispatcher, as the consumer
// does.
func (r *fixture) ingestAndAdd(d runningDispatcher, events ...deliveries.Event) {
	r.t.Helper()
	var done store.Ingested
	err := pg.InPipeline(r.t.Context(), r.pool, func(tx *pg.Pipeline) (err error) {
		done, err = r.store.Ingest(r.t.Context(), tx, events...)
		return err
	})
	if err != nil {
		r.t.Errorf("Ingest: %v", err)
	}
	d.Add(done.Due)
}

func (r *fixture) awaitEmptyQueue() {
	r.t.Helper()
	testkit.NoError(r.t, func() error {
		if n := r.count(`SELECT count(*) FROM delivery_queue`); n != 0 {
			return fmt.Errorf("open deliveries = %d, want 0", n)
		}
		return nil
	})
}

// wakeOnlyConfig returns a configuration with a poll interval of one hour, so that the dispatcher
// polls only after Wake.
func wakeOnlyConfig() dispatch.Config {
	cfg := config()
	cfg.Poll = time.Hour
	return cfg
}

func config() dispatch.Config {
	return dispatch.Config{
		RetryDelays: []time.Duration{100 * time.Millisecond, 150 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond},
		Lease:       15 * time.Second, MaxInFlight: 256, Poll: 100 * time.Millisecond,
		Rule: subscriptions.FailureRule{Failures: 20, Duration: 15 * time.Minute, Exhausted: 3},
	}
}

// runningDispatcher is a dispatcher that runs during a test. stopAndWait cancels its context, as
// SIGTERM does, and waits until Run has returned. The channel `stopping` is closed after the
// cancellation.
type runningDispatcher struct {
	*dispatch.Dispatcher
	stopAndWait func()
	stopping    <-chan struct{}
	metrics     *prometheus.Registry
}

func (r *fixture) dispatch(cfg dispatch.Config) runningDispatcher {
	r.t.Helper()
	g := ssrf.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	client, err := dispatch.NewClient(r.client, g)
	if err != nil {
		r.t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	d := dispatch.New(r.store, client, cfg, metrics)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.Run(ctx)
	}()
	stop := func() {
		cancel()
		<-done
	}
	r.t.Cleanup(stop)
	return runningDispatcher{d, stop, ctx.Done(), metrics}
}

func (r *fixture) subscribe(url string, events ...openapi.EventType) (id uuid.UUID, secret string) {
	r.t.Helper()
	secret, err := subscriptions.NewSecret()
	if err != nil {
		r.t.Fatal(err)
	}
	if events == nil {
		events = []openapi.EventType{
			openapi.EventTypeCallRinging, openapi.EventTypeCallAnswered, openapi.EventTypeCallCompleted, openapi.EventTypeCallFailed,
			openapi.EventTypeCallNoAnswer, openapi.EventTypeCallBusy,
		}
	}
	id = uuid.Must(uuid.NewV7())
	sub := subscriptions.Subscription{ID: id, WorkspaceID: r.workspace, Name: "test", URL: url, Events: events}
	if err := r.store.Create(r.t.Context(), sub, secret); err != nil {
		r.t.Fatalf("Create: %v", err)
	}
	return id, secret
}

// event returns an event. Its id depends only on the call and the type.
func (r *fixture) event(call uuid.UUID, sequence int32, kind string) deliveries.Event {
	id := uuid.NewSHA1(call, []byte(kind))
	return deliveries.Event{
		ID: id, WorkspaceID: r.workspace, ObjectID: &call, Type: kind, Sequence: sequence,
		CreatedAt: time.Unix(1780574400, 0).UTC(),
		Body:      fmt.Appendf(nil, `{"id":%q,"type":%q,"sequence":%d,"data":{"call_id":%q}}`, id, kind, sequence, call),
	}
}

func (r *fixture) ingest(events ...deliveries.Event) {
	r.t.Helper()
	err := pg.InTx(r.t.Context(), r.pool, func(tx pgx.Tx) error {
		for _, ev := range events {
			if _, err := r.store.Ingest(r.t.Context(), tx, ev); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatalf("Ingest: %v", err)
	}
}

func (r *fixture) setStatus(id uuid.UUID, status subscriptions.Status) subscriptions.Subscription {
	r.t.Helper()
	sub, err := r.store.Change(r.t.Context(), r.workspace, id, store.Change{Status: &status})
	if err != nil {
		r.t.Fatalf("Change to %s: %v", status, err)
	}
	return sub
}

func (r *fixture) subscription(id uuid.UUID) subscriptions.Subscription {
	r.t.Helper()
	sub, err := r.store.Subscription(r.t.Context(), r.workspace, id)
	if err != nil {
		r.t.Fatalf("Subscription: %v", err)
	}
	return sub
}

func (r *fixture) delivery(sub, event uuid.UUID) store.Delivery {
	r.t.Helper()
	var id uuid.UUID
	const idOf = `SELECT id FROM deliveries WHERE subscription_id = $1 AND event_id = $2`
	if err := r.pool.QueryRow(r.t.Context(), idOf, sub, event).Scan(&id); err != nil {
		r.t.Fatalf("find delivery of event %s: %v", event, err)
	}
	d, err := r.store.Delivery(r.t.Context(), r.workspace, sub, id)
	if err != nil {
		r.t.Fatalf("Delivery: %v", err)
	}
	return d
}

func (r *fixture) awaitStatus(sub, event uuid.UUID, want deliveries.Status) {
	r.t.Helper()
	testkit.NoError(r.t, func() error {
		if d := r.delivery(sub, event); d.Status != want {
			return fmt.Errorf("status = %s after %d attempts, want %s", d.Status, d.Attempts, want)
		}
		return nil
	})
}

// withoutStatementTimeout removes the statement timeout of Postgres. Only a context can then cancel
// a statement.
func (r *fixture) withoutStatementTimeout() {
	r.t.Helper()
	settings := r.pool.Config()
	settings.ConnConfig.RuntimeParams["statement_timeout"] = "0"
	pool, err := pgxpool.NewWithConfig(r.t.Context(), settings)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(pool.Close)
	r.store = store.New(pool, r.box)
}

func (r *fixture) claim(claim store.Claim) []deliveries.Work {
	r.t.Helper()
	claimed, err := r.store.ClaimDue(r.t.Context(), claim)
	if err != nil {
		r.t.Fatalf("ClaimDue: %v", err)
	}
	return claimed.Work
}

// storeResults stores the results and returns the number of results that the store accepted.
func (r *fixture) storeResults(results ...deliveries.Result) int {
	r.t.Helper()
	done, err := r.store.Complete(r.t.Context(), results)
	if err != nil {
		r.t.Fatalf("Complete: %v", err)
	}
	return done.Settled
}

func (r *fixture) count(sql string, args ...any) (n int) {
	r.t.Helper()
	if err := r.pool.QueryRow(r.t.Context(), sql, args...).Scan(&n); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (r *fixture) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

func (r *fixture) awaitLocked() {
	r.t.Helper()
	testkit.NoError(r.t, func() error {
		if r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
			return errors.New("nothing waits for a lock")
		}
		return nil
	})
}

func wantEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

type receivedRequest struct {
	at       time.Time
	header   http.Header
	body     []byte
	Type     string          `json:"type"`
	Sequence int             `json:"sequence"`
	Data     json.RawMessage `json:"data"`
}

func (g receivedRequest) deliveryID() string { return g.header.Get("X-Service-Delivery-Id") }

type receiver struct {
	URL      string
	mu       sync.Mutex
	got      []receivedRequest
	response func(receivedRequest, int) int
}

// newReceiver starts an endpoint. responseStatus returns the status of the response to a request.
// Its second parameter is the number of the request, counted from 1. If responseStatus is nil, the
// receiver responds 200.
func newReceiver(t *testing.T, responseStatus func(receivedRequest, int) int) *receiver {
	t.Helper()
	r := &receiver{response: responseStatus}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		g := receivedRequest{at: time.Now(), header: req.Header.Clone()}
		g.body, _ = io.ReadAll(req.Body)
		_ = json.Unmarshal(g.body, &g)
		r.mu.Lock()
		r.got = append(r.got, g)
		n, response := len(r.got), r.response
		r.mu.Unlock()
		if response != nil {
			w.WriteHeader(response(g, n))
		}
	}))
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

func (r *receiver) respondWith(responseStatus func(receivedRequest, int) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.response = responseStatus
}

func always(code int) func(receivedRequest, int) int {
	return func(receivedRequest, int) int { return code }
}

func (r *receiver) all() []receivedRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *receiver) await(t *testing.T, n int) []receivedRequest {
	t.Helper()
	testkit.NoError(t, func() error {
		if have := len(r.all()); have < n {
			return fmt.Errorf("received requests = %d, want %d", have, n)
		}
		return nil
	})
	return r.all()
}
