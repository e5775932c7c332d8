package settlement_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/settlement"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

const twoMinutes = 2 * time.Minute

func relayOf(t *testing.T, pool *pgxpool.Pool) *outbox.Relay {
	t.Helper()
	bus, err := kafka.NewClient(kafka.Config{Brokers: []string{"127.0.0.1:1"}}, "test", prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	return outbox.NewRelay(pool, bus, prometheus.NewRegistry(), outbox.Config{})
}

func insertHold(t *testing.T, st *store.Store, owner *pgxpool.Pool, workspace uuid.UUID, age time.Duration) uuid.UUID {
	t.Helper()
	order := wallettest.Order(workspace)
	if _, err := st.Hold(t.Context(), workspace, []holds.Order{order}); err != nil {
		t.Fatal(err)
	}
	makeOlder(t, owner, order.RequestID, age)
	return order.RequestID
}

func makeOlder(t *testing.T, owner *pgxpool.Pool, requestID uuid.UUID, by time.Duration) {
	t.Helper()
	_, err := owner.Exec(t.Context(), `
		UPDATE holds SET created_at = created_at - make_interval(secs => $2), confirm_requested_at = confirm_requested_at - make_interval(secs => $2)
		WHERE request_id = $1`, requestID, by.Seconds())
	if err != nil {
		t.Fatal(err)
	}
}

func setAge(t *testing.T, owner *pgxpool.Pool, requestID uuid.UUID, age time.Duration) {
	t.Helper()
	if _, err := owner.Exec(t.Context(), `
		UPDATE holds SET created_at = now() - make_interval(secs => $2), confirm_requested_at = NULL WHERE request_id = $1`, requestID, age.Seconds()); err != nil {
		t.Fatal(err)
	}
}

func reportedEarly(t *testing.T, owner *pgxpool.Pool, requestID uuid.UUID) (reported bool) {
	t.Helper()
	err := owner.QueryRow(t.Context(), `SELECT coalesce(confirm_requested_at - created_at > interval '2 minutes', false) FROM holds WHERE request_id = $1`, requestID).Scan(&reported)
	if err != nil {
		t.Fatal(err)
	}
	return reported
}

func TestConfirmer_RepeatsTheEventUntilTheHoldIsConfirmed(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	owner := pgtest.Owner(t, pool, wallettest.Schema)
	st := store.New(pool)
	workspace := wallettest.Workspace(t, st, 10*money.Credit)
	asker := settlement.NewConfirmer(st, relayOf(t, pool), twoMinutes, nil)
	old := insertHold(t, st, owner, workspace, 121*time.Second)
	young := insertHold(t, st, owner, workspace, 0)
	seen := insertHold(t, st, owner, workspace, time.Hour)
	confirm(t, pool, st, workspace, seen)

	late := 0
	reported := func(step string, want int) {
		t.Helper()
		setAge(t, owner, young, 118*time.Second) // two seconds before the hold is due
		n, err := asker.Pass(t.Context())
		// If the pass took more than two seconds, the hold became due during the pass, and its
		// report is correct.
		if n == want+1 && reportedEarly(t, owner, young) {
			late++
			n--
		}
		if err != nil {
			t.Errorf("%s: Pass: %v", step, err)
		} else if n != want {
			t.Errorf("%s: n = %v, want %v", step, n, want)
		}
	}
	reported("old enough", 1)
	reported("reported a moment ago", 0)
	makeOlder(t, owner, old, 121*time.Second)
	reported("two minutes later", 1)
	makeOlder(t, owner, old, 24*365*time.Hour)
	reported("a year later", 1)
	wallettest.Balances(t, st, workspace, 10*money.Credit-3*money.Credit/2, 3*money.Credit/2)

	confirm(t, pool, st, workspace, old)
	makeOlder(t, owner, old, time.Hour)
	reported("answered with requested", 0)

	var events int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM outbox`).Scan(&events); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if events != 3+late {
		t.Errorf("events = %v, want %v", events, 3+late)
	}
}

func confirm(t *testing.T, pool *pgxpool.Pool, st *store.Store, workspace, requestID uuid.UUID) {
	t.Helper()
	err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		confirmed, err := st.Confirm(t.Context(), tx, store.Request{WorkspaceID: workspace, RequestID: requestID})
		if err == nil && !confirmed[0] {
			t.Errorf("hold of request %s was not confirmed", requestID)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The event `requested` of the hold arrived, but the event that ends the request was lost.
func TestConfirmer_ReportsLongOpenHolds(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	owner := pgtest.Owner(t, pool, wallettest.Schema)
	st := store.New(pool)
	workspace := wallettest.Workspace(t, st, 10*money.Credit)
	asker := settlement.NewConfirmer(st, relayOf(t, pool), twoMinutes, nil)
	old, young := insertHold(t, st, owner, workspace, 7*time.Hour), insertHold(t, st, owner, workspace, 5*time.Hour)
	confirm(t, pool, st, workspace, old)
	confirm(t, pool, st, workspace, young)

	wantReported := func(step string, want int) {
		t.Helper()
		if _, err := asker.Pass(t.Context()); err != nil {
			t.Fatalf("%s: Pass: %v", step, err)
		}
		var got int
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM outbox WHERE key = $1`,
			old.String()).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s: events for the old hold = %d, want %d", step, got, want)
		}
	}
	wantReported("open for 7 hours", 1)
	wantReported("reported a moment ago", 1)
	makeOlder(t, owner, old, 7*time.Hour)
	wantReported("reported 7 hours ago", 2)
	var events int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM outbox`).Scan(&events); err != nil {
		t.Fatal(err)
	}
	if events != 2 {
		t.Errorf("events = %d, want 2: the hold of 5 hours is not reported", events)
	}
}

func TestConfirmer_SkipsSettledHolds(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	owner := pgtest.Owner(t, pool, wallettest.Schema)
	st := store.New(pool)
	workspace := wallettest.Workspace(t, st, money.Credit)
	id := insertHold(t, st, owner, workspace, time.Hour)
	err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		return st.EnqueueOutcome(t.Context(), tx, holds.Outcome{WorkspaceID: workspace, RequestID: id, Reason: holds.Abandoned})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Settle(t.Context(), workspace, 1, func(*pgx.Batch, []store.Settlement) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if n, err := settlement.NewConfirmer(st, relayOf(t, pool), twoMinutes, nil).Pass(t.Context()); err != nil {
		t.Errorf("Pass: %v", err)
	} else if n != 0 {
		t.Errorf("Pass: n = %v, want 0", n)
	}
}

func TestConfirm_NeverWaitsForALockedHold(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	workspace := wallettest.Workspace(t, st, money.Credit)
	order := wallettest.Order(workspace)
	if _, err := st.Hold(t.Context(), workspace, []holds.Order{order}); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(locking pgx.Tx) error {
		if _, err := locking.Exec(t.Context(), `SELECT 1 FROM holds WHERE request_id = $1 FOR UPDATE`, order.RequestID); err != nil {
			return err
		}
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			confirmed, err := st.Confirm(t.Context(), tx, store.Request{WorkspaceID: workspace, RequestID: order.RequestID})
			if err == nil && confirmed[0] {
				t.Error("a locked hold was confirmed")
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestConfirmer_EventOfAnInboundHoldContainsTheCall(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	owner, st := pgtest.Owner(t, pool, wallettest.Schema), store.New(pool)
	workspace, call := wallettest.Workspace(t, st, money.Credit), wallettest.ID()
	order := holds.Order{RequestID: call, WorkspaceID: workspace, MaxCallSeconds: 60,
		Inbound: &holds.Rate{PerMinute: 30_000, IncrementSeconds: 1}}
	if _, err := st.Hold(t.Context(), workspace, []holds.Order{order}); err != nil {
		t.Fatal(err)
	}
	makeOlder(t, owner, call, time.Hour)
	if _, err := settlement.NewConfirmer(st, relayOf(t, pool), twoMinutes, nil).Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	var key string
	var payload []byte
	const query = "SELECT convert_from(key, 'UTF8'), payload FROM outbox WHERE topic = 'wallet-events.v1'"
	if err := pool.QueryRow(t.Context(), query).Scan(&key, &payload); err != nil {
		t.Fatal(err)
	}
	var event eventv1.WalletEvent
	if err := proto.Unmarshal(payload, &event); err != nil {
		t.Fatal(err)
	}
	if key != call.String() {
		t.Errorf("key = %q, want %s", key, call)
	}
	if got := event.GetUnconfirmed().GetCallId(); got != call.String() {
		t.Errorf("call_id = %q, want %s", got, call)
	}
	if got := event.GetCallRequestId(); got != "" {
		t.Errorf("call_request_id = %q, want it empty", got)
	}
}
