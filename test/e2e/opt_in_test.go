package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const (
	firstOptIn = 7_400_000
	// optInEach is the number of objects of each event type.
	optInEach  = 6
	optInKills = 20
)

// holdAnalyses moves the events with a transcript from the dialer's outbox into another table.
// releaseAnalyses publishes them.
const (
	holdAnalyses = `
CREATE TABLE dialer.held_analyses (LIKE dialer.outbox);
CREATE FUNCTION dialer.hold_analysis() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	INSERT INTO dialer.held_analyses SELECT NEW.*;
	RETURN NULL;
END $$;
CREATE TRIGGER hold_analyses BEFORE INSERT ON dialer.outbox FOR EACH ROW
	WHEN (position('"turns"'::bytea IN NEW.payload) > 0) EXECUTE FUNCTION dialer.hold_analysis()`
	releaseAnalyses = `
DROP TRIGGER hold_analyses ON dialer.outbox;
INSERT INTO dialer.outbox (event_id, topic, key, headers, payload)
	SELECT event_id, topic, key, headers, payload FROM dialer.held_analyses`
)

const (
	expire  = `UPDATE dialer.dial_queue SET due_at = now() - interval '25 hours' WHERE call_request_id = $1`
	makeDue = `UPDATE dialer.dial_queue SET due_at = now(), look_at = now() WHERE call_request_id = $1`
)

// optInTrial causes opt-in events while processes are killed.
type optInTrial struct {
	*testing.T
	*kit.Workspace
	db    *pgx.Conn
	hooks *kit.Receiver
	// path is the path of the subscription that lists the opt-in events.
	path string
	// want contains the expected events in the form of the keys of received.
	want []string
}

// The test kills the processes while the events of requests without a call, of late analyses and
// of low balances arise. Each event must arrive, and no event may have two ids. A delivery whose
// response was not stored can be repeated with the same event id.
func TestOptIn_KilledProcessesLoseAndRepeatNoEvent(t *testing.T) {
	rng, hooks, server := sharedstack.Seeded(t, 1), receiver(t), database(t)
	s := start(t, binaries(t), "POSTGRES_URL="+server.URL, "SSL_CERT_FILE="+hooks.CAFile, "INSTANCE_LEASE=2s",
		"WEBHOOK_LEASE=3s", "WEBHOOK_TIMEOUT=2s", "CLAIM_LEASE=3s")
	db, err := pgx.Connect(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	p := &optInTrial{T: t, Workspace: tenant(t, s, hooks, "1000"), db: db, hooks: hooks}
	p.subscribe()
	p.completeWithoutAnalysis()
	canceled, expired := p.schedule(firstOptIn+1_000), p.schedule(firstOptIn+2_000)
	blocked := p.schedule(firstOptIn + 3_000)
	until(t, "the requests are in the dial queue", func() bool {
		return p.count("SELECT count(*) FROM dialer.dial_queue WHERE state = 'queued'") == 3*optInEach
	})
	stopKills := killUntilStopped(t, rng, s)
	p.execute(releaseAnalyses)
	for i := range optInEach {
		p.repeat(p.API, "POST", "/v1/call-requests/"+canceled[i].ID+"/cancel", nil)
		p.execute(expire, expired[i].ID)
		p.repeat(p.API, "POST", "/v1/opt-outs", map[string]any{"phone_e164": blocked[i].To})
		p.execute(makeDue, blocked[i].ID)
		p.fallBelowThreshold(i + 1)
		p.want = append(p.want, "call_request.canceled "+canceled[i].ID, "call_request.failed "+expired[i].ID,
			"call_request.blocked "+blocked[i].ID)
	}
	t.Logf("kills: %d", stopKills())
	if err := s.AwaitReady(t.Context(), kit.HangTimeout); err != nil {
		t.Fatal(err)
	}
	p.judge()
}

// killUntilStopped kills processes at random times until the returned function is called, but at
// least optInKills processes. The function returns the number of kills.
func killUntilStopped(t *testing.T, rng *rand.Rand, s *kit.Stack) (stop func() int) {
	victims := []string{
		"calls", "dialer", "billing-wallet", "webhook-dispatcher", "contacts-compliance", "gateway", "broker",
	}
	ended, killed := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		defer func() { killed <- n }()
		for stopped := false; !stopped || n < optInKills; {
			pause(t, time.Duration(200+rng.IntN(400))*time.Millisecond)
			if s.KillOne(victims[rng.IntN(len(victims))], 0) {
				n++
			}
			select {
			case <-ended:
				stopped = true
			case <-t.Context().Done():
				return
			default:
			}
		}
	}()
	return func() int { close(ended); return <-killed }
}

func (p *optInTrial) subscribe() {
	p.Helper()
	var made struct {
		Secret string `json:"signing_secret"`
	}
	p.path = p.ID + "/opt-in"
	body := map[string]any{"name": "opt-in", "url": p.hooks.URL + "/" + p.path, "events": []string{
		"call.analyzed", "call_request.blocked", "call_request.failed", "call_request.canceled", "wallet.low_balance",
	}}
	if err := p.API.Into(p.Context(), "POST", "/v1/webhook-subscriptions", body, http.StatusCreated, &made); err != nil {
		p.Fatal(err)
	}
	p.hooks.SetSecret("/"+p.path, made.Secret)
}

// completeWithoutAnalysis places calls and waits until call.completed of each call arrived without
// its analysis.
func (p *optInTrial) completeWithoutAnalysis() {
	p.Helper()
	p.execute(holdAnalyses)
	for i := range optInEach {
		if _, err := p.Place(p.Context(), map[string]any{"to": number(firstOptIn + 100*i)}); err != nil {
			p.Fatal(err)
		}
	}
	completed := map[string]bool{}
	until(p.T, "call.completed of each call arrives", func() bool {
		for _, d := range p.hooks.Deliveries(p.ID) {
			if d.Type == "call.completed" {
				completed[d.CallID] = true
			}
		}
		return len(completed) == optInEach
	})
	for call := range completed {
		p.want = append(p.want, "call.analyzed "+call)
	}
}

func (p *optInTrial) schedule(first int) (requests []kit.Request) {
	p.Helper()
	for i := range optInEach {
		requests = append(requests, place(p.T, p.Workspace, number(first+100*i), time.Now().Add(time.Hour), false))
	}
	return requests
}

// fallBelowThreshold makes the balance of 1000 fall below its threshold of 100 for the n-th time.
func (p *optInTrial) fallBelowThreshold(n int) {
	p.Helper()
	wallet := "/admin/v1/workspaces/" + p.ID + "/wallet"
	p.repeat(p.Admin, "PATCH", wallet, map[string]any{"low_balance_threshold": "100"})
	fall := map[string]any{"type": "adjustment", "amount": "-950", "reference": fmt.Sprint("fall ", n)}
	p.repeat(p.Admin, "POST", wallet+"/transactions", fall)
	rise := map[string]any{"type": "top_up", "amount": "950", "reference": fmt.Sprint("rise ", n)}
	p.repeat(p.Admin, "POST", wallet+"/transactions", rise)
	p.want = append(p.want, fmt.Sprintf("wallet.low_balance %d", n))
}

// repeat sends a request until it succeeds, because the processes are being killed. A cancel whose
// first response was lost is answered with 409.
func (p *optInTrial) repeat(client *kit.Client, method, path string, body any) {
	p.Helper()
	until(p.T, method+" "+path+" succeeds", func() bool {
		status, answer, err := client.Do(context.WithoutCancel(p.Context()), method, path, body)
		if err == nil && status >= 400 && status < 500 && status != http.StatusConflict {
			p.Fatalf("%s %s = %d %s", method, path, status, answer)
		}
		return err == nil && status < 500
	})
}

func (p *optInTrial) execute(sql string, args ...any) {
	p.Helper()
	if _, err := p.db.Exec(p.Context(), sql, args...); err != nil {
		p.Fatal(err)
	}
}

func (p *optInTrial) count(sql string) (n int) {
	p.Helper()
	if err := p.db.QueryRow(p.Context(), sql).Scan(&n); err != nil {
		p.Fatal(err)
	}
	return n
}

// awaitEvents waits until every expected event has arrived.
func (p *optInTrial) awaitEvents() {
	p.Helper()
	until(p.T, "every event arrives", func() bool {
		received := p.received()
		return !slices.ContainsFunc(p.want, func(event string) bool { return len(received[event]) == 0 })
	})
}

// judge waits until every event has arrived and nothing is left to deliver. Then it checks that
// each expected event has one id, and that there are no other events.
func (p *optInTrial) judge() {
	p.Helper()
	p.awaitEvents()
	until(p.T, "every outbox and the delivery queue are empty", func() bool {
		const queued = `SELECT (SELECT count(*) FROM calls.outbox) + (SELECT count(*) FROM dialer.outbox)
			+ (SELECT count(*) FROM billing_wallet.outbox) + (SELECT count(*) FROM webhook_dispatcher.delivery_queue)`
		return p.count(queued) == 0
	})
	received := p.received()
	if got := len(received); got != len(p.want) {
		p.Errorf("different events = %d, want %d", got, len(p.want))
	}
	for event, ids := range received {
		if !slices.Contains(p.want, event) {
			p.Errorf("event %s arrived, want it not", event)
		}
		if len(ids) != 1 {
			p.Errorf("ids of event %s = %v, want one", event, ids)
		}
	}
}

// received returns the different event ids of each event. The key is the type and the object: the
// call, the request, or the sequence of wallet.low_balance.
func (p *optInTrial) received() map[string][]string {
	p.Helper()
	received := map[string][]string{}
	for _, d := range p.hooks.Deliveries(p.path) {
		if !d.Signed {
			p.Errorf("delivery %s of %s is not signed", d.DeliveryID, d.Type)
		}
		var envelope struct {
			Data struct {
				ID     string `json:"id"`
				CallID string `json:"call_id"`
			} `json:"data"`
		}
		if err := json.Unmarshal(d.Body, &envelope); err != nil {
			p.Fatal(err)
		}
		object := envelope.Data.CallID
		switch d.Type {
		case "wallet.low_balance":
			object = fmt.Sprint(d.Sequence)
		case "call_request.blocked", "call_request.failed", "call_request.canceled":
			object = envelope.Data.ID
		}
		event := d.Type + " " + object
		if !slices.Contains(received[event], d.EventID) {
			received[event] = append(received[event], d.EventID)
		}
	}
	return received
}
