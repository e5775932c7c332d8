package store_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/store"
)

func TestStoreOutbound_ConcurrentCallsDoNotExceedTheChannelLimit(t *testing.T) {
	t.Parallel()
	const channels, calls = 5, 40
	pool := newLegPool(t)
	trunk := uuid.New()
	var began atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		j := store.NewLegs(pool, pool, uuid.New(), legLease)
		all.Go(func() {
			for n := range calls / 4 {
				err := beginLeg(t, j, trunk, channels, n%2 == 0)
				switch {
				case err == nil:
					began.Add(1)
				case !errors.Is(err, store.ErrChannels):
					t.Errorf("begin a call = %v, want ErrChannels", err)
				}
			}
		})
	}
	all.Wait()
	if got := began.Load(); got != channels {
		t.Errorf("calls that began = %d, want %d", got, channels)
	}
	if err := beginLeg(t, store.NewLegs(pool, pool, uuid.New(), legLease), uuid.New(), channels, false); err != nil {
		t.Errorf("begin a call over another trunk: %v", err)
	}
}

func TestStoreOutbound_EndedLegFreesItsChannel(t *testing.T) {
	t.Parallel()
	pool := newLegPool(t)
	j := store.NewLegs(pool, nil, uuid.New(), legLease)
	trunk := uuid.New()
	for range 3 {
		id := uuid.Must(uuid.NewV7())
		if err := beginAs(t, j, id, trunk, 1, false); err != nil {
			t.Fatalf("begin a call: %v", err)
		}
		if err := beginLeg(t, j, trunk, 1, false); !errors.Is(err, store.ErrChannels) {
			t.Errorf("begin a second call = %v, want ErrChannels", err)
		}
		if err := beginAs(t, j, id, trunk, 2, false); !errors.Is(err, store.ErrLegExists) {
			t.Errorf("begin the call again = %v, want ErrBegun", err)
		}
		if _, err := pool.Exec(t.Context(), "UPDATE sip_legs SET ended_at = now() WHERE call_id = $1", id); err != nil {
			t.Fatalf("end the call: %v", err)
		}
	}
}

const insertLegs = `
INSERT INTO sip_legs (call_id, trunk_id, inbound, from_number, to_number, owner, counted_at)
SELECT gen_random_uuid(), $1, false, '', '', gen_random_uuid(), now() - $2::interval
FROM generate_series(1, 20000) AS n`

// While a transaction has an old snapshot, vacuum cannot remove the rows of legs that have ended. A
// count of channels must not read legs whose counted_at is older than ten minutes.
func TestTrunkHasChannel_ReadsFewDatabasePagesOfEndedLegs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		counted time.Duration
		most    int
	}{
		"counted more than ten minutes ago": {counted: 11 * time.Minute, most: 20},
		"counted in the last ten minutes":   {counted: 9 * time.Minute, most: 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pagesOfEndedLegs(t, tt.counted, tt.most)
		})
	}
}

func pagesOfEndedLegs(t *testing.T, counted time.Duration, most int) {
	t.Helper()
	pool := newLegPool(t)
	watched, seen := pgtest.Watch(t, pool)
	trunk := uuid.New()
	snapshot, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Rollback(t.Context()) }()
	for _, sql := range []string{"SET LOCAL idle_in_transaction_session_timeout = 0", "SELECT count(*) FROM sip_legs"} {
		if _, err := snapshot.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if _, err := pool.Exec(t.Context(), insertLegs, trunk, counted); err != nil {
		t.Fatalf("insert legs: %v", err)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE sip_legs SET ended_at = now()"); err != nil {
		t.Fatalf("end the legs: %v", err)
	}
	if _, err := pgtest.Super(t, pool, "dialer").Exec(t.Context(), "VACUUM ANALYZE sip_legs"); err != nil {
		t.Fatal(err)
	}
	if err := beginLeg(t, store.NewLegs(pool, nil, uuid.New(), legLease), trunk, 2, false); err != nil {
		t.Fatalf("begin a call: %v", err)
	}
	var free bool
	args := pg.Args{"trunk": trunk, "channels": 2}
	if err := watched.QueryRow(t.Context(), "SELECT trunk_has_channel(@trunk, @channels)", args).Scan(&free); err != nil {
		t.Fatal(err)
	}
	if !free {
		t.Error("the trunk has a free channel = false, want true")
	}
	got, plans := seen.Pages(t, pgtest.GenericPlan)
	t.Logf("pages of the count beside 20,000 ended legs = %d", got)
	if got > most {
		t.Errorf("pages of the count = %d, want at most %d; plans:\n%s", got, most, plans)
	}
}

func TestMoveLongCalls_MovedCallsStillUseCapacity(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, legs, trunk := newStore(pool), store.NewLegs(pool, nil, uuid.New(), legLease), uuid.New()
	if err := beginLeg(t, legs, trunk, 1, true); err != nil {
		t.Fatalf("begin a call: %v", err)
	}
	const insert = `
		INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status, ringing_at,
			max_call_seconds, deadline_at)
		SELECT call_id, call_id, 'inbound', '+14155550100', '+14155550101', call_id, 'ringing', now(), 600, now()
		FROM sip_legs`
	if _, err := pool.Exec(t.Context(), insert); err != nil {
		t.Fatalf("insert the call: %v", err)
	}
	for range 3 {
		for _, table := range []string{"sip_legs", "calls"} {
			const age = " SET counted_at = counted_at - interval '6 minutes'"
			if _, err := pool.Exec(t.Context(), "UPDATE "+table+age); err != nil {
				t.Fatalf("make %s older: %v", table, err)
			}
		}
		moved, err := st.MoveLongCalls(t.Context())
		if err != nil {
			t.Fatalf("MoveLongCalls: %v", err)
		}
		if moved != 2 {
			t.Errorf("moved rows = %d, want 2", moved)
		}
	}
	if err := beginLeg(t, legs, trunk, 1, false); !errors.Is(err, store.ErrChannels) {
		t.Errorf("begin a second call = %v, want ErrChannels", err)
	}
	live, err := legs.Channels(t.Context())
	if err != nil {
		t.Fatalf("Channels: %v", err)
	}
	if live[trunk] != 1 {
		t.Errorf("live calls of the trunk = %d, want 1", live[trunk])
	}
	depth, err := store.ReadDepth(t.Context(), pool)
	if err != nil {
		t.Fatalf("ReadDepth: %v", err)
	}
	if depth.Inbound != 1 {
		t.Errorf("inbound calls = %d, want 1", depth.Inbound)
	}
}

func beginLeg(t *testing.T, j *store.Legs, trunk uuid.UUID, channels int32, inbound bool) error {
	t.Helper()
	return beginAs(t, j, uuid.Must(uuid.NewV7()), trunk, channels, inbound)
}

func beginAs(t *testing.T, j *store.Legs, id, trunk uuid.UUID, channels int32, inbound bool) error {
	t.Helper()
	c := store.Leg{
		CallID: id, TrunkID: trunk, Inbound: inbound, From: "+14155550100", To: "+14155550101", Channels: channels,
		Attempt: store.TrunkAttempt{ID: uuid.New(), Trunk: "far", SIPCallID: id.String()},
	}
	return j.StoreOutbound(t.Context(), c)
}
