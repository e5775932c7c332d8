package retention_test

import (
	"encoding/base64"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/retention"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

const (
	schema = "webhook_dispatcher"
	day    = 24 * time.Hour
	keep   = 30 * day
)

func noon() time.Time { return time.Date(2026, 6, 4, 12, 0, 0, 0, time.UTC) }

// fixture uses the database role of the running service.
type fixture struct {
	t         testing.TB
	pool      *pgxpool.Pool
	store     *store.Store
	job       *retention.Job
	workspace uuid.UUID
	sub       uuid.UUID
}

func tracks() []pg.Migrations {
	return []pg.Migrations{outbox.Migrations, inbox.Migrations, {Name: schema, FS: store.Migrations}}
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	pool := pgtest.New(t, schema, tracks()...)
	box, err := seal.New(seal.Config{Keys: []string{"t=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	if err != nil {
		t.Fatal(err)
	}
	st := store.New(pool, box)
	job := retention.New(st, retention.Config{Keep: keep})
	r := &fixture{t: t, pool: pool, store: st, job: job, workspace: uuid.Must(uuid.NewV7())}
	r.sub = uuid.Must(uuid.NewV7())
	err = st.Create(t.Context(), subscriptions.Subscription{
		ID: r.sub, WorkspaceID: r.workspace, Name: "a", URL: "https://example.com/", Events: []openapi.EventType{"call.completed"},
	}, "whsec_a")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *fixture) rotate(now time.Time) {
	r.t.Helper()
	if err := r.job.RotateDays(r.t.Context(), now); err != nil {
		r.t.Fatalf("RotateDays at %s: %v", now, err)
	}
}

func (r *fixture) ingest(at time.Time) uuid.UUID {
	r.t.Helper()
	call := uuid.New()
	ev := deliveries.Event{
		ID: uuid.New(), WorkspaceID: r.workspace, ObjectID: &call, Type: "call.completed", Sequence: 1,
		Body: []byte(`{}`), CreatedAt: at,
	}
	for {
		err := pgx.BeginFunc(r.t.Context(), r.pool, func(tx pgx.Tx) error {
			_, err := r.store.Ingest(r.t.Context(), tx, ev)
			return err
		})
		var fault *pgconn.PgError
		switch {
		case err == nil:
			return ev.ID
		// another transaction created the partition after this INSERT had started, so the INSERT is
		// repeated, as the inbox does
		case errors.As(err, &fault) && fault.Code == "23514" && fault.ConstraintName == "":
		default:
			r.t.Fatalf("Ingest: %v", err)
		}
	}
}

func (r *fixture) claim() []deliveries.Work {
	r.t.Helper()
	claimed, err := r.store.ClaimDue(r.t.Context(), store.Claim{
		Quotas: []store.Quota{{SubscriptionID: r.sub, Total: 100, Retries: 100}}, Lease: time.Minute, Attempts: 5})
	if err != nil {
		r.t.Fatalf("ClaimDue: %v", err)
	}
	return claimed.Work
}

// complete stores a result at the given time for each delivery. It returns how many results the
// store accepted.
func (r *fixture) complete(work []deliveries.Work, outcome deliveries.Outcome, at time.Time) (settled int) {
	r.t.Helper()
	results := make([]deliveries.Result, len(work))
	for i, w := range work {
		results[i] = deliveries.Result{DeliveryID: w.DeliveryID, Attempt: w.Attempt, Replay: w.Replay, Outcome: outcome, Response: deliveries.Response{Code: 200, At: at}}
	}
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

func (r *fixture) partitionsOfRows(table string) (names []string) {
	r.t.Helper()
	rows, err := r.pool.Query(r.t.Context(), "SELECT tableoid::regclass::text FROM "+table)
	if err == nil {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		r.t.Fatalf("places of %s: %v", table, err)
	}
	slices.Sort(names)
	return names
}

// partitionDays returns the days of the partitions of a table. It leaves out the default partition.
func (r *fixture) partitionDays(table string) (names []string) {
	r.t.Helper()
	rows, err := r.pool.Query(r.t.Context(), `SELECT right(inhrelid::regclass::text, 8) FROM pg_inherits
		WHERE inhparent = $1::regclass AND inhrelid <> format('%s_default', $1::text)::regclass ORDER BY 1`, table)
	if err == nil {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		r.t.Fatalf("days of %s: %v", table, err)
	}
	return names
}

func wantEqual(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func (r *fixture) setStatus(text string) {
	r.t.Helper()
	status := subscriptions.Status(text)
	if _, err := r.store.Change(r.t.Context(), r.workspace, r.sub, store.Change{Status: &status}); err != nil {
		r.t.Fatalf("Change to %s: %v", text, err)
	}
}

// lockTimeout reports whether the job failed with a lock timeout. The job then tries again at its
// next run.
func lockTimeout(err error) bool {
	var fault *pgconn.PgError
	return errors.As(err, &fault) && fault.Code == "55P03"
}
