package retention_test

import (
	"context"
	"errors"
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
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/consumer"
	"ringfence.dev/services/calls/internal/retention"
	"ringfence.dev/services/calls/internal/store"
)

// callsPerStep must equal maxErasedPerStep of package store.
const callsPerStep = 500

const (
	insertInbound = `
INSERT INTO calls (id, workspace_id, direction, from_number, to_e164, agent_id, status, billable_seconds, version,
	closed, sequence, summary, transcript)
SELECT gen_random_uuid(), $1, 'inbound', $2, '+14155550100', $1, 'completed', 0, 1,
	true, 1, '{"customer_name":"Xylophone"}', '{"turns":["Xylophone"]}'
FROM generate_series(1, $3)`
	insertNewest = `
INSERT INTO calls (id, workspace_id, direction, from_number, to_e164, agent_id, status, billable_seconds, version,
	summary)
VALUES ('ffffffff-ffff-7fff-bfff-ffffffffffff', $1, 'inbound', $2, '+14155550100', $1, 'in_progress', 0, 1, '{}')`
	insertRequests = `
WITH requests AS (
	INSERT INTO call_requests (id, workspace_id, status, call_id, to_e164, agent_id, contact_id, variables, scheduled_for,
		schedule_if_outside_hours, max_call_seconds, queued_at, traceparent, erasures)
	SELECT gen_random_uuid(), $1, 'queued', CASE WHEN n % 2 = 0 THEN gen_random_uuid() END, $2, $1, $3,
		'{"name":"Xylophone"}', now(), false, 600, now(), '', $5
	FROM generate_series(1, $4) AS n
	RETURNING id, call_id)
INSERT INTO calls (id, workspace_id, call_request_id, direction, from_number, to_e164, agent_id, contact_id, status,
	billable_seconds, version, sequence, summary)
SELECT call_id, $1, id, 'outbound', '+14155550100', $2, $1, $3, 'in_progress', 0, 1, 1, '{"customer_name":"Xylophone"}'
FROM requests WHERE call_id IS NOT NULL`
	lockNextCall = `
SELECT pg_backend_pid() FROM calls WHERE from_number = $1 AND erased_at IS NULL ORDER BY id LIMIT 1 FOR UPDATE`
	isBlocking    = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))`
	countUnerased = `
SELECT count(*) FROM calls
WHERE erased_at IS NULL AND (summary IS NOT NULL OR transcript IS NOT NULL) AND $1 IN (from_number, to_e164)`
)

type fixture struct {
	*testing.T
	pool      *pgxpool.Pool
	store     *store.Store
	handlers  inbox.Handlers
	workspace uuid.UUID
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := pgtest.New(t, "calls", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "calls", FS: store.Migrations})
	st := store.New(pool, nil)
	handlers := consumer.New(st, callstate.Waits{}, func() {}, prometheus.NewRegistry()).Handlers()
	return &fixture{T: t, pool: pool, store: st, handlers: handlers, workspace: uuid.Must(uuid.NewV7())}
}

func (f *fixture) orderErasure(id, contact uuid.UUID, number string) uuid.UUID {
	f.Helper()
	order := &eventv1.Erased{ErasureId: id.String(), PhoneE164: number, ContactId: contact.String(), Erasures: 1}
	event := &eventv1.ContactEvent{WorkspaceId: f.workspace.String(), Event: &eventv1.ContactEvent_Erased{Erased: order}}
	value, err := proto.Marshal(event)
	if err != nil {
		f.Fatal(err)
	}
	rec := kafka.Record{
		Topic: kafka.Contacts.Name, Key: number, EventID: uuid.New(), Value: value, Time: time.Now(),
		Type: string(event.ProtoReflect().Descriptor().FullName()),
	}
	err = pgx.BeginFunc(f.Context(), f.pool, func(tx pgx.Tx) error {
		return kafkatest.Apply(f.Context(), tx, f.handlers[kafka.Contacts.Name], rec)
	})
	if err != nil {
		f.Fatalf("deliver erased: %v", err)
	}
	return id
}

func (f *fixture) exec(sql string, args ...any) {
	f.Helper()
	if _, err := f.pool.Exec(f.Context(), sql, args...); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) wantCount(what string, want int, sql string, args ...any) {
	f.Helper()
	var got int
	if err := f.pool.QueryRow(f.Context(), sql, args...).Scan(&got); err != nil {
		f.Fatal(err)
	}
	if got != want {
		f.Fatalf("%s = %d, want %d", what, got, want)
	}
}

func (f *fixture) runSteps(wantSteps int) {
	f.Helper()
	steps := 0
	if err := retention.NewErasureJob(f.store, func() { steps++ }).Work(f.Context()); err != nil {
		f.Fatalf("Work: %v", err)
	}
	if steps != wantSteps {
		f.Errorf("steps = %d, want %d", steps, wantSteps)
	}
}

// wantReports checks the number of reports of an erasure. It counts the next steps that the reports
// name, by service and reference.
func (f *fixture) wantReports(id uuid.UUID, want int) map[string]int {
	f.Helper()
	rows, err := f.pool.Query(f.Context(),
		"SELECT payload FROM outbox WHERE topic = $1 AND key = $2 ORDER BY id", kafka.ErasureReports.Name, id.String())
	if err != nil {
		f.Fatal(err)
	}
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		f.Fatal(err)
	}
	if len(payloads) != want {
		f.Errorf("reports = %d, want %d", len(payloads), want)
	}
	reported := map[string]int{}
	for i, payload := range payloads {
		var report eventv1.ErasureReport
		if err := proto.Unmarshal(payload, &report); err != nil {
			f.Fatal(err)
		}
		if got, want := report.GetStepDone().GetMore(), i < len(payloads)-1; got != want {
			f.Errorf("report %d of %d: more = %v, want %v", i+1, len(payloads), got, want)
		}
		for _, next := range report.GetStepDone().GetNext() {
			reported[next.GetService()+" "+next.GetRef()]++
		}
	}
	return reported
}

// crashInStep calls beforeCrash while a step waits for a locked call, and then cancels the step.
func (f *fixture) crashInStep(number string, beforeCrash func()) {
	f.Helper()
	blocker, err := f.pool.Begin(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(context.WithoutCancel(f.Context())) }()
	var pid int
	err = blocker.QueryRow(f.Context(), lockNextCall, number).Scan(&pid)
	if err != nil {
		f.Fatal(err)
	}
	ctx, crash := context.WithCancel(f.Context())
	defer crash()
	ended := make(chan error, 1)
	go func() { ended <- retention.NewErasureJob(f.store, func() {}).Work(ctx) }()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for waits := false; !waits; {
		select {
		case err := <-ended:
			f.Fatalf("Work ended before it reached the locked call: %v", err)
		case <-ticks.C:
		}
		if err := f.pool.QueryRow(f.Context(), isBlocking, pid).Scan(&waits); err != nil {
			f.Fatal(err)
		}
	}
	beforeCrash()
	crash()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		f.Fatalf("Work = %v, want context.Canceled", err)
	}
}

func TestErasureJob_ManyInboundCallsAreErasedInSteps(t *testing.T) {
	t.Parallel()
	const caller, second, third, calls = "+14155550111", "+14155550122", "+14155550133", 4_000
	f, contact := newFixture(t), uuid.Must(uuid.NewV7())
	f.exec(insertInbound, f.workspace, caller, calls)
	f.exec(insertInbound, f.workspace, second, 1)
	f.exec(insertInbound, f.workspace, third, 1)

	id := f.orderErasure(uuid.Must(uuid.NewV7()), contact, caller)
	f.wantCount("calls left after the consumer's transaction", calls-callsPerStep, countUnerased, caller)
	refused, err := f.store.ErasedSince(t.Context(), callstate.Request{WorkspaceID: f.workspace, To: caller})
	if err != nil {
		t.Fatal(err)
	}
	if !refused {
		t.Error("a request that was allowed before the erasure is placed while the job runs")
	}
	f.orderErasure(uuid.Must(uuid.NewV7()), contact, second)
	f.wantCount("calls of another person after a record between two steps", 0, countUnerased, second)

	f.crashInStep(caller, func() {
		f.orderErasure(uuid.Must(uuid.NewV7()), contact, third)
		f.wantCount("calls of another person after a record during a step", 0, countUnerased, third)
	})
	f.wantCount("calls left after the crash", calls-callsPerStep, countUnerased, caller)

	f.exec(insertNewest, f.workspace, caller)
	f.orderErasure(id, contact, caller) // the repeated order must not start a second job
	f.wantCount("calls left after the repeated order", calls-callsPerStep+1, countUnerased, caller)
	f.runSteps(0)
	// makes the interrupted step due now; otherwise it is due a minute after its start
	f.exec("UPDATE erasure_jobs SET step_at = now()")
	f.runSteps(calls / callsPerStep)

	f.wantCount("calls left, of which one arrived after the order", 1, countUnerased, caller)
	f.wantCount("jobs left", 0, "SELECT count(*) FROM erasure_jobs")
	f.wantCount("erased events", calls+2, "SELECT count(*) FROM outbox WHERE topic = $1", kafka.CallEvents.Name)
	reported := f.wantReports(id, calls/callsPerStep+1)
	if len(reported) != calls {
		t.Errorf("calls reported = %d, want %d", len(reported), calls)
	}
	for step, times := range reported {
		if times != 1 {
			t.Fatalf("%q was reported %d times, want 1", step, times)
		}
	}
}

func TestErasureJob_ManyRequestsAreErasedInSteps(t *testing.T) {
	t.Parallel()
	const number, requests = "+14155550144", 1200
	const countRequests = "SELECT count(*) FROM call_requests WHERE variables::text LIKE '%Xylophone%'"
	f, contact := newFixture(t), uuid.Must(uuid.NewV7())
	f.exec(insertRequests, f.workspace, number, contact, requests, 0)
	f.exec(insertRequests, f.workspace, number, contact, 1, 1)

	id := f.orderErasure(uuid.Must(uuid.NewV7()), contact, number)
	f.runSteps(2)
	f.wantCount("requests left", 1, countRequests)
	f.wantCount("calls left", 0, countUnerased, number)

	f.exec(insertInbound, f.workspace, number, 1)
	f.orderErasure(id, contact, number)
	f.runSteps(2)
	f.wantCount("requests left after the second order", 1, countRequests)
	f.wantCount("inbound calls left after the second order", 1, countUnerased, number)
	f.wantCount("erased requests", 2*requests, "SELECT count(*) FROM outbox WHERE topic = $1", kafka.CallRequests.Name)
	f.wantCount("erased calls", requests, "SELECT count(*) FROM outbox WHERE topic = $1", kafka.CallEvents.Name)
}
