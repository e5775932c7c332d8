package httpapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/proto/dialerv1"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/calls/internal/callrequests"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/consumer"
	"ringfence.dev/services/calls/internal/httpapi"
	"ringfence.dev/services/calls/internal/peers"
	"ringfence.dev/services/calls/internal/recordings"
	"ringfence.dev/services/calls/internal/store"
)

var tracks = []pg.Migrations{outbox.Migrations, inbox.Migrations, {Name: "calls", FS: store.Migrations}}

// rig is the whole service without its main function. It uses a real Postgres, HTTP servers that
// replace the other services, and a gateway key that signs requests.
type rig struct {
	t         testing.TB
	pool      *pgxpool.Pool
	store     *store.Store
	peers     *fakePeers
	server    *httptest.Server
	gateway   *serviceauth.Keys
	handlers  inbox.Handlers
	waits     callstate.Waits
	workspace uuid.UUID
	agent     uuid.UUID
	backlog   atomic.Int64
	metrics   *prometheus.Registry
}

type settings struct {
	intake callrequests.Config
	waits  callstate.Waits
	links  *recordings.Links
}

func newRig(t testing.TB, change ...func(*settings)) *rig {
	t.Helper()
	set := settings{
		intake: callrequests.Config{Lease: 30 * time.Second, Wait: 10 * time.Second},
		waits:  callstate.Waits{Charge: 5 * time.Second, Analysis: 10 * time.Second},
	}
	for _, c := range change {
		c(&set)
	}
	pool := pgtest.New(t, "calls", tracks...)
	r := &rig{
		t: t, pool: pool, store: store.New(pool, set.links),
		peers: &fakePeers{preCheck: allow, hold: held, withdraw: withdrawn(true)},
		waits: set.waits, workspace: newID(t), metrics: prometheus.NewRegistry(),
	}
	r.gateway = keys(t, "gateway")
	self := keys(t, "calls", r.gateway)
	asked, err := peers.New(peers.Config{
		ContactsURL: r.peer("contacts-compliance", self), WalletURL: r.peer("billing-wallet", self), DialerURL: r.peer("dialer", self),
	}, self)
	if err != nil {
		t.Fatal(err)
	}
	asked.Timeout = testkit.Timeout
	wake := func() {}
	in := callrequests.New(set.intake, r.store, asked, wake, func() time.Duration { return time.Duration(r.backlog.Load()) }, r.metrics)
	api := httpapi.New(in, callrequests.NewCanceler(r.store, asked, wake), r.store, set.links, asked, wake)
	r.server = httptest.NewServer(api.Handler(nil, self))
	t.Cleanup(r.server.Close)
	r.handlers = consumer.New(r.store, set.waits, wake, r.metrics).Handlers()
	r.agent = uuid.MustParse(r.want(http.StatusCreated, "POST", r.admin("/agents"), map[string]any{"name": "Ada"})["id"].(string))
	return r
}

// peer starts a server that replaces another service. It accepts only requests that the service
// `calls` signed.
func (r *rig) peer(name string, self *serviceauth.Keys) string {
	r.t.Helper()
	guard := keys(r.t, name, self).AllowServices("calls")
	mux := http.NewServeMux()
	mux.Handle(compliancev1.NewPreCheckServiceHandler(r.peers, guard))
	mux.Handle(billingv1.NewHoldServiceHandler(r.peers, guard))
	mux.Handle(dialerv1.NewWithdrawServiceHandler(r.peers, guard))
	mux.Handle(dialerv1.NewHangupServiceHandler(r.peers, guard))
	mux.Handle(settingsv1.NewSettingServiceHandler(r.peers, guard))
	server := httptest.NewServer(mux)
	r.t.Cleanup(server.Close)
	return server.URL
}

func keys(t testing.TB, self string, trusted ...*serviceauth.Keys) *serviceauth.Keys {
	t.Helper()
	seed := make([]byte, 32)
	_, _ = rand.Read(seed)
	cfg := serviceauth.Config{SigningKey: base64.StdEncoding.EncodeToString(seed)}
	asker := map[string]string{"calls": "gateway"}[self]
	if asker == "" {
		asker = "calls"
	}
	for _, k := range trusted {
		cfg.TrustedKeys = append(cfg.TrustedKeys, asker+"="+k.Public())
	}
	k, err := serviceauth.New(self, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newID(t testing.TB) uuid.UUID {
	t.Helper()
	return uuid.Must(uuid.NewV7())
}

func (r *rig) admin(path string) string { return "/admin/v1/workspaces/" + r.workspace.String() + path }

type answer struct {
	status int
	header http.Header
	body   map[string]any
}

func (a answer) code() string {
	inner, _ := a.body["error"].(map[string]any)
	code, _ := inner["code"].(string)
	return code
}

func (a answer) message() string {
	inner, _ := a.body["error"].(map[string]any)
	text, _ := inner["message"].(string)
	return text
}

func (a answer) id() string {
	id, _ := a.body["id"].(string)
	return id
}

func (r *rig) do(method, path string, body any, header ...string) answer {
	r.t.Helper()
	return r.doAs(r.workspace, method, path, body, header...)
}

// doAs sends a request. The body is JSON text or a value that doAs encodes.
func (r *rig) doAs(workspace uuid.UUID, method, path string, body any, header ...string) answer {
	r.t.Helper()
	var send io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		send = bytes.NewBufferString(b)
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		send = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, send)
	if err != nil {
		r.t.Fatal(err)
	}
	token, err := r.gateway.SignCaller("calls", serviceauth.Caller{WorkspaceID: workspace, RequestID: newID(r.t), Access: serviceauth.Write, Operator: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set(serviceauth.CallerHeader, token)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Error(err)
		return answer{}
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Error(err)
		return a
	}
	testkit.CheckTimestamps(r.t, raw, "summary")
	if err := json.Unmarshal(raw, &a.body); err != nil {
		r.t.Errorf("%s %s: decode answer %d: %v", method, path, resp.StatusCode, err)
	}
	return a
}

func (r *rig) want(status int, method, path string, body any, header ...string) map[string]any {
	r.t.Helper()
	a := r.do(method, path, body, header...)
	if a.status != status {
		r.t.Fatalf("%s %s = %d %v, want %d", method, path, a.status, a.body, status)
	}
	return a.body
}

func (r *rig) order(more ...any) map[string]any {
	body := map[string]any{"agent_id": r.agent, "to": "+14155550100"}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

func (r *rig) place(more ...any) uuid.UUID {
	r.t.Helper()
	return uuid.MustParse(r.want(http.StatusAccepted, "POST", "/v1/calls", r.order(more...))["id"].(string))
}

// applyEvent applies one event without the inbox, because the inbox would skip repeated events.
func (r *rig) applyEvent(topic kafka.Topic, key string, event proto.Message) error {
	return kafkatest.Commit(context.WithoutCancel(r.t.Context()), r.pool, r.handlers[topic.Name], r.record(topic, key,
		event))
}

func (r *rig) rollBack(topic kafka.Topic, key string, event proto.Message) {
	r.t.Helper()
	err := pgx.BeginFunc(r.t.Context(), r.pool, func(tx pgx.Tx) error {
		if err := kafkatest.Apply(r.t.Context(), tx, r.handlers[topic.Name], r.record(topic, key, event)); err != nil {
			return err
		}
		return tx.Rollback(r.t.Context())
	})
	if !errors.Is(err, pgx.ErrTxClosed) {
		r.t.Fatalf("deliver %T in a transaction that is rolled back: %v", event, err)
	}
}

func (r *rig) record(topic kafka.Topic, key string, event proto.Message) kafka.Record {
	r.t.Helper()
	value, err := proto.Marshal(event)
	if err != nil {
		r.t.Fatal(err)
	}
	return kafka.Record{
		Topic: topic.Name, Key: key, EventID: uuid.New(), Type: string(event.ProtoReflect().Descriptor().FullName()),
		Value: value, Time: time.Now(),
	}
}

func (r *rig) mustDeliver(topic kafka.Topic, key string, event proto.Message) {
	r.t.Helper()
	if err := r.applyEvent(topic, key, event); err != nil && !kafka.IsSkip(err) {
		r.t.Fatalf("deliver %T: %v", event, err)
	}
}

func outboxEvents[M any, P interface {
	*M
	proto.Message
}](r *rig, topic kafka.Topic) []P {
	r.t.Helper()
	rows, err := r.pool.Query(context.WithoutCancel(r.t.Context()), `SELECT payload FROM outbox WHERE topic = $1 ORDER BY id`, topic.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		r.t.Fatal(err)
	}
	found := make([]P, 0, len(payloads))
	for _, payload := range payloads {
		event := P(new(M))
		if err := proto.Unmarshal(payload, event); err != nil {
			r.t.Fatal(err)
		}
		found = append(found, event)
	}
	return found
}

func (r *rig) requestEvents(id uuid.UUID) (names []string) {
	r.t.Helper()
	for _, f := range outboxEvents[eventv1.CallRequestEvent](r, kafka.CallRequests) {
		if f.GetCallRequestId() != id.String() {
			continue
		}
		switch f.GetEvent().(type) {
		case *eventv1.CallRequestEvent_Requested:
			names = append(names, "requested")
		case *eventv1.CallRequestEvent_Canceled:
			names = append(names, "canceled")
		case *eventv1.CallRequestEvent_Abandoned:
			names = append(names, "abandoned")
		case *eventv1.CallRequestEvent_Erased:
			names = append(names, "erased")
		}
	}
	return names
}

func (r *rig) events() (events []map[string]any) {
	r.t.Helper()
	for _, f := range outboxEvents[eventv1.CallEvent](r, kafka.CallEvents) {
		var envelope map[string]any
		if err := json.Unmarshal(f.GetPublic().GetBody(), &envelope); err != nil {
			r.t.Fatal(err)
		}
		events = append(events, envelope)
	}
	return events
}

// eventTypes returns the types of the public events of all calls and requests.
func (r *rig) eventTypes() (types []string) {
	r.t.Helper()
	for _, e := range r.events() {
		types = append(types, e["type"].(string))
	}
	return types
}

// types returns the types of all public events and checks their sequence numbers.
func (r *rig) types() (types []string) {
	r.t.Helper()
	for i, e := range r.events() {
		types = append(types, e["type"].(string))
		if e["sequence"] != float64(i+1) {
			r.t.Errorf("event %d has sequence %v", i+1, e["sequence"])
		}
	}
	return types
}

func (r *rig) count(sql string, args ...any) (n int) {
	r.t.Helper()
	if err := r.pool.QueryRow(context.WithoutCancel(r.t.Context()), sql, args...).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) request(id uuid.UUID) map[string]any {
	r.t.Helper()
	return r.want(http.StatusOK, "GET", "/v1/call-requests/"+id.String(), nil)
}

func (r *rig) complete() {
	r.t.Helper()
	if err := consumer.NewCompletionJob(r.store, r.waits, func() {}).Once(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) republish(after time.Duration) {
	r.t.Helper()
	if err := callrequests.NewRepublishJob(r.store, after, func() {}, prometheus.NewRegistry()).Once(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) metric(name string, label string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func number(i int) string { return fmt.Sprintf("+1415555%04d", i) }
