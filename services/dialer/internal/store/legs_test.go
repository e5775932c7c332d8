package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	legLease   = 5 * time.Minute // long enough that no lease ends during a test
	shortLease = time.Second
)

func newLegPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: store.Migrations})
}

func newTime() *time.Time {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return &now
}

func dial(t *testing.T, j *store.Legs) uuid.UUID {
	t.Helper()
	id := uuid.Must(uuid.NewV7())
	c := store.Leg{
		CallID: id, TrunkID: uuid.New(), From: "+14155550100", To: "+14155550101",
		Attempt: store.TrunkAttempt{ID: id, Trunk: "far", SIPCallID: id.String()},
	}
	if err := j.StoreOutbound(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c.CallID
}

func apply(t *testing.T, pool *pgxpool.Pool, guard store.Guard) error {
	t.Helper()
	return store.New(pool, uuid.New(), store.Timing{}).ApplyEvents(t.Context(), store.Events{
		Guard: guard,
		Fold:  func(map[uuid.UUID]*callstate.Call, bool) (store.Folded, error) { return store.Folded{}, nil },
	})
}

func checkGuard(t *testing.T, pool *pgxpool.Pool, name string, guard store.Guard, want error) {
	t.Helper()
	if err := apply(t, pool, guard); !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", name, err, want)
	}
}

func TestGuard_AcceptsOnlyTheOwnerOfALiveLeg(t *testing.T) {
	t.Parallel()
	pool := newLegPool(t)
	j, other := store.NewLegs(pool, pool, uuid.New(), legLease), store.NewLegs(pool, pool, uuid.New(), legLease)
	id, at := dial(t, j), *newTime()
	checkGuard(t, pool, "events of the owner", j.Guard(id), nil)
	checkGuard(t, pool, "events of another process", other.Guard(id), store.ErrLost)
	checkGuard(t, pool, "the answer by the owner", j.AnswerGuard(id, at), nil)
	checkGuard(t, pool, "the answer by another process", other.AnswerGuard(id, at), store.ErrLost)
	if err := j.StoreTeardown(t.Context(), id, []byte("dialog")); err != nil {
		t.Fatal(err)
	}
	byOther := store.End{At: at, Cause: callstate.NormalClearing}
	checkGuard(t, pool, "the end by another process", other.EndGuard(id, byOther), store.ErrLost)
	if known, err := j.Find(t.Context(), id); err != nil {
		t.Errorf("Find: %v", err)
	} else if string(known.Teardown) != "dialog" {
		t.Errorf("teardown state = %q, want dialog", known.Teardown)
	}
	checkGuard(t, pool, "the end", j.EndGuard(id, store.End{At: at, Cause: callstate.NormalClearing, ByUs: true}), nil)
	checkGuard(t, pool, "a second end", j.EndGuard(id, store.End{At: at, Cause: callstate.UserBusy}), store.ErrLost)
	checkGuard(t, pool, "events after the end", j.Guard(id), store.ErrLost)
	known, err := j.Find(t.Context(), id)
	if err != nil {
		t.Fatalf("Find: %v", err)
	}
	if known.EndedAt == nil || !known.EndedAt.Equal(at) {
		t.Errorf("EndedAt = %v, want %v", known.EndedAt, at)
	}
	if known.Cause != callstate.NormalClearing {
		t.Errorf("cause = %s, want %s", known.Cause, callstate.NormalClearing)
	}
	if !known.ByUs {
		t.Error("by us = false, want true")
	}
	if known.Teardown != nil {
		t.Errorf("teardown state = %q, want none", known.Teardown)
	}
}

func TestStoreOutbound_SecondLegOfACallIsRejected(t *testing.T) {
	t.Parallel()
	pool := newLegPool(t)
	j, other := store.NewLegs(pool, pool, uuid.New(), legLease), store.NewLegs(pool, pool, uuid.New(), legLease)
	id := dial(t, j)
	if err := j.StoreOutbound(t.Context(), store.Leg{CallID: id}); !errors.Is(err, store.ErrLegExists) {
		t.Errorf("Dial again = %v, want ErrBegun", err)
	}
	forgotten := store.Leg{CallID: id, Attempt: store.TrunkAttempt{ID: id}}
	if err := other.DeleteRefused(t.Context(), forgotten, store.Refusal{At: *newTime()}); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Find(t.Context(), id); err != nil {
		t.Errorf("Find after Forget by another process = %v, want nil", err)
	}
	if err := j.DeleteRefused(t.Context(), forgotten, store.Refusal{At: *newTime()}); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Find(t.Context(), id); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("Find after Forget = %v, want ErrNotFound", err)
	}
}

func TestHeartbeat_OnlyTheOwnerReceivesTheRequestsForALeg(t *testing.T) {
	t.Parallel()
	pool := newLegPool(t)
	owner, other := store.NewLegs(pool, pool, uuid.New(), legLease), store.NewLegs(pool, pool, uuid.New(), legLease)
	id := dial(t, owner)
	asked := func(j *store.Legs) int {
		t.Helper()
		calls, err := j.Heartbeat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(calls)
	}
	if n := asked(owner); n != 0 {
		t.Errorf("legs to hang up without a request = %d, want 0", n)
	}
	switch known, err := other.RequestHangup(t.Context(), id); {
	case err != nil:
		t.Errorf("AskHangup: %v", err)
	case known.HangupAt == nil:
		t.Error("known.HangupAt = nil, want a value")
	case known.EndedAt != nil:
		t.Errorf("known.EndedAt = %v, want nil", known.EndedAt)
	}
	if mine, theirs := asked(owner), asked(other); mine != 1 {
		t.Errorf("mine = %v, want 1", mine)
	} else if theirs != 0 {
		t.Errorf("theirs = %v, want 0", theirs)
	}
	checkGuard(t, pool, "the end", owner.EndGuard(id, store.End{At: *newTime(), Cause: callstate.NormalClearing,
		ByUs: true}), nil)
	if n := asked(owner); n != 0 {
		t.Errorf("legs to hang up after the end = %d, want 0", n)
	}
	if _, err := other.RequestAnswer(t.Context(), uuid.New()); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("unknown call: error = %v", err)
	}
}

// adoptedLegs repeats the heartbeat until legs are adopted. An owner adopts legs only after its
// heartbeats were on time for one lease.
func adoptedLegs(t *testing.T, j *store.Legs) (calls []store.Leg) {
	t.Helper()
	testkit.Until(t, "calls are adopted", func() bool {
		if _, err := j.Heartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls = adoptLegs(t, j)
		return len(calls) > 0
	})
	return calls
}

func adoptLegs(t *testing.T, j *store.Legs) []store.Leg {
	t.Helper()
	calls, err := j.Adopt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

func TestAdopt_TakesOnlyLegsOfDeadOwners(t *testing.T) {
	t.Parallel()
	pool, otherID, silentID := newLegPool(t), uuid.New(), uuid.New()
	live := store.NewLegs(pool, pool, uuid.New(), shortLease)
	other, silent := store.NewLegs(pool, pool, otherID, shortLease), store.NewLegs(pool, pool, silentID, shortLease)
	ofOther, ofSilent := dial(t, other), dial(t, silent)
	if _, err := other.Heartbeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE sip_leg_owners SET seen_at = now() + interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	_ = dial(t, live)
	if got := adoptedLegs(t, live); len(got) != 1 || got[0].CallID != ofSilent {
		t.Fatalf("adopted calls = %v, want only %s of the owner without a heartbeat", got, ofSilent)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE sip_leg_owners SET seen_at = now() - interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	if got := len(adoptLegs(t, live)); got != 0 {
		t.Errorf("calls adopted by an owner whose heartbeat is as old = %d, want 0", got)
	}
	if got := adoptedLegs(t, live); len(got) != 1 || got[0].CallID != ofOther {
		t.Fatalf("adopted calls = %v, want only %s of the dead owner", got, ofOther)
	}
	checkGuard(t, pool, "the end by the dead owner",
		other.EndGuard(ofOther, store.End{At: *newTime(), Cause: callstate.NormalClearing}), store.ErrLost)
	end := store.End{At: *newTime(), Cause: callstate.Unspecified, ByUs: true}
	checkGuard(t, pool, "the end", live.EndGuard(ofOther, end), nil)
}

func TestPrune_DeletesOnlyLegsThatEndedLongAgo(t *testing.T) {
	t.Parallel()
	pool := newLegPool(t)
	j := store.NewLegs(pool, pool, uuid.New(), legLease)
	old, recent, live := dial(t, j), dial(t, j), dial(t, j)
	for id, at := range map[uuid.UUID]time.Time{old: newTime().Add(-time.Hour), recent: *newTime()} {
		checkGuard(t, pool, "the end", j.EndGuard(id, store.End{At: at, Cause: callstate.NormalClearing}), nil)
	}
	if _, err := j.Prune(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uuid.UUID]error{old: pg.ErrNotFound, recent: nil, live: nil} {
		if _, err := j.Find(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("Find = %v, want %v", err, want)
		}
	}
}

func TestLiveOwners_CountsRecentHeartbeats(t *testing.T) {
	t.Parallel()
	pool := newLegPool(t)
	one, two, gone := store.NewLegs(pool, pool, uuid.New(), legLease), store.NewLegs(pool, pool, uuid.New(), legLease), uuid.New()
	for _, j := range []*store.Legs{one, two, store.NewLegs(pool, pool, gone, legLease)} {
		if _, err := j.Heartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const expire = "UPDATE sip_leg_owners SET seen_at = now() - interval '6 minutes' WHERE owner = $1"
	if _, err := pool.Exec(t.Context(), expire, gone); err != nil {
		t.Fatal(err)
	}
	if n, err := one.LiveOwners(t.Context()); err != nil {
		t.Errorf("Living: %v", err)
	} else if n != 2 {
		t.Errorf("Living: n = %v, want 2", n)
	}
}

// A failover can lose the row of a leg whose INVITE was sent minutes ago.
func TestStoreOutbound_KeepsTheDialTimeOfALegThatIsStoredAgain(t *testing.T) {
	t.Parallel()
	j := store.NewLegs(newLegPool(t), nil, uuid.New(), legLease)
	id, dialed := uuid.Must(uuid.NewV7()), newTime().Add(-time.Minute)
	err := j.StoreOutbound(t.Context(), store.Leg{
		CallID: id, TrunkID: uuid.New(), From: "+14155550100", To: "+14155550101", DialedAt: &dialed,
		Attempt: store.TrunkAttempt{ID: id, Trunk: "far", SIPCallID: id.String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := j.Find(t.Context(), id); err != nil {
		t.Error(err)
	} else if found.DialedAt == nil || !found.DialedAt.Equal(dialed) {
		t.Errorf("dial time = %v, want %v", found.DialedAt, dialed)
	}
}
