package journal_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/store/journal"
	"ringfence.dev/services/dialer/migrations"
)

const lease = 5 * time.Minute // longer than any test takes

func newPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: migrations.FS})
}

func instant() *time.Time {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return &now
}

// dial writes an outbound call down.
func dial(t *testing.T, j *journal.Journal) uuid.UUID {
	t.Helper()
	id := uuid.Must(uuid.NewV7())
	c := journal.Call{
		CallID: id, TrunkID: uuid.New(), From: "+14155550100", To: "+14155550101", DialedAt: instant(),
		Attempt: journal.Attempt{ID: id, Trunk: "far", SIPCallID: id.String()},
	}
	if err := j.Dial(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c.CallID
}

func told(t *testing.T, j *journal.Journal, callID uuid.UUID) (kinds []journal.Kind) {
	t.Helper()
	_, all, err := j.News(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Call.CallID == callID {
			kinds = append(kinds, one.Kind)
		}
	}
	return kinds
}

// wants checks what a change said.
func wants(t *testing.T, deed string, want bool) func(bool, error) {
	return func(got bool, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: error = %v, want nil", deed, err)
		} else if got != want {
			t.Errorf("%s: got = %v, want %v", deed, got, want)
		}
	}
}

func TestTell_EachOnceInOrderAndNothingButAnOptOutAfterTheEnd(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	j := journal.New(pool, pool, uuid.New(), lease)
	id, at := dial(t, j), *instant()
	wants(t, "an opt-out before the answer", false)(j.OptOut(t.Context(), id, at, "too early"))
	wants(t, "taken", true)(j.Take(t.Context(), id, at, at))
	wants(t, "taken again", false)(j.Take(t.Context(), id, at, at))
	wants(t, "ringing", true)(j.Ring(t.Context(), id, at))
	wants(t, "ringing again", false)(j.Ring(t.Context(), id, at))
	wants(t, "answered", true)(j.Answer(t.Context(), id, at))
	if err := j.Keep(t.Context(), id, []byte("dialog")); err != nil {
		t.Fatal(err)
	}
	wants(t, "answered again", false)(j.Answer(t.Context(), id, at))
	wants(t, "ringing after the answer", false)(j.Ring(t.Context(), id, at))
	wants(t, "an opt-out", true)(j.OptOut(t.Context(), id, at, "never again"))
	for range 2 {
		if err := j.Say(t.Context(), id, []agent.Turn{{Role: agent.RoleAgent, Text: "hello", At: at}, {Role: agent.RolePerson, Text: "never again", At: at}}); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, "another's end", false)(journal.New(pool, pool, uuid.New(), lease).End(t.Context(), id,
		journal.End{At: at, Cause: call.NormalClearing, ByUs: false}))
	if known, err := j.Find(t.Context(), id); err != nil {
		t.Errorf("call: Find: %v", err)
	} else if string(known.Teardown) != "dialog" {
		t.Errorf(`call: known.Teardown = %q, want "dialog"`, string(known.Teardown))
	}
	wants(t, "ended", true)(j.End(t.Context(), id, journal.End{At: at, Cause: call.NormalClearing, ByUs: true}))
	wants(t, "ended again", false)(j.End(t.Context(), id, journal.End{At: at, Cause: call.UserBusy, ByUs: false}))
	wants(t, "an opt-out after the end, in a call that another has taken over",
		true)(journal.New(pool, pool, uuid.New(), lease).OptOut(t.Context(), id, at, "late, and all the same"))
	if got := told(t, j, id); !slices.Equal(got, []journal.Kind{journal.Taken, journal.Ringing, journal.Answered, journal.OptedOut, journal.Said, journal.Said, journal.Ended, journal.OptedOut}) {
		t.Errorf("news = %v", got)
	}
	known, err := j.Find(t.Context(), id)
	switch {
	case err != nil:
		t.Errorf("error = %v, want none", err)
	case known.EndedAt == nil:
		t.Error("known.EndedAt = nil, want a value")
	case known.Cause != call.NormalClearing:
		t.Errorf("known.Cause = %v, want %v", known.Cause, call.NormalClearing)
	case !known.ByUs:
		t.Error("known.ByUs = false, want true")
	case known.Teardown != nil:
		t.Errorf("known.Teardown = %v, want nil", known.Teardown)
	}
}

func TestDial_OnceForACallAndForgottenOnlyUntold(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	j := journal.New(pool, pool, uuid.New(), lease)
	refused, taken := dial(t, j), dial(t, j)
	if err := j.Dial(t.Context(), journal.Call{CallID: refused, DialedAt: instant()}); !errors.Is(err, journal.ErrBegun) {
		t.Errorf("dialled again: %v, want ErrBegun", err)
	}
	wants(t, "taken", true)(j.Take(t.Context(), taken, *instant(), *instant()))
	for _, id := range []uuid.UUID{refused, taken} {
		forgotten := journal.Call{CallID: id, Attempt: journal.Attempt{ID: id}}
		if err := j.Forget(t.Context(), forgotten, journal.Refusal{At: *instant()}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Find(t.Context(), refused); !errors.Is(err, journal.ErrNone) {
		t.Errorf("a refused call: %v, want ErrNone", err)
	}
	if _, err := j.Find(t.Context(), taken); err != nil {
		t.Errorf("a call that was told of: %v", err)
	}
}

// TestNews_AReaderMissesNone: places are given in the order of commits, so whoever reads on behind the last one has read all before it.
func TestNews_AReaderMissesNone(t *testing.T) {
	t.Parallel()
	const writers, calls = 8, 20
	pool := newPool(t)
	var all sync.WaitGroup
	for range writers {
		j := journal.New(pool, pool, uuid.New(), lease)
		all.Go(func() {
			for range calls {
				id := dial(t, j)
				wants(t, "taken", true)(j.Take(t.Context(), id, *instant(), *instant()))
				wants(t, "answered", true)(j.Answer(t.Context(), id, *instant()))
				wants(t, "ended", true)(j.End(t.Context(), id, journal.End{At: *instant(), Cause: call.NormalClearing, ByUs: false}))
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	j, place, read, feed := journal.New(pool, pool, uuid.New(), lease), int64(0), 0, ""
	for over := false; ; {
		named, batch, err := j.News(t.Context(), place)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range batch {
			if one.Seq != place+1 {
				t.Fatalf("after place %d comes %d", place, one.Seq)
			}
			place, read = one.Seq, read+1
		}
		if feed == "" {
			feed = named
		}
		if feed != named {
			t.Fatalf("the feed: feed = %v, want %v", feed, named)
		}
		if feed == "" {
			t.Fatal("the feed: feed is empty, want a value")
		}
		if over && len(batch) == 0 {
			break
		}
		select {
		case <-done:
			over = true
		default:
		}
	}
	if read != writers*calls*3 {
		t.Errorf("%d news read, want %d", read, writers*calls*3)
	}
}

func TestAsk_ReachesTheOwnerAlone(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	owner, other := journal.New(pool, pool, uuid.New(), lease), journal.New(pool, pool, uuid.New(), lease)
	id := dial(t, owner)
	wants(t, "taken", true)(owner.Take(t.Context(), id, *instant(), *instant()))
	asked := func(j *journal.Journal) int {
		t.Helper()
		calls, err := j.Beat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(calls)
	}
	if n := asked(owner); n != 0 {
		t.Errorf("%d calls to end, and nobody asked", n)
	}
	switch known, err := other.AskHangup(t.Context(), id); {
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
	wants(t, "ended", true)(owner.End(t.Context(), id, journal.End{At: *instant(), Cause: call.NormalClearing, ByUs: true}))
	if n := asked(owner); n != 0 {
		t.Errorf("%d calls to end after the end", n)
	}
	if _, err := other.AskPickup(t.Context(), uuid.New()); !errors.Is(err, journal.ErrNone) {
		t.Errorf("a call that nobody knows: %v", err)
	}
}

func TestAdopt_OnlyTheCallsOfTheDeadByWhoeverLives(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	dead, alive, silent := journal.New(pool, pool, uuid.New(), lease), journal.New(pool, pool, uuid.New(), lease),
		journal.New(pool, pool, uuid.New(), lease)
	orphan := dial(t, dead)
	for _, j := range []*journal.Journal{dead, alive} {
		if _, err := j.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_ = dial(t, alive)
	adopted := func(j *journal.Journal) []journal.Call {
		t.Helper()
		calls, err := j.Adopt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return calls
	}
	if got := adopted(alive); len(got) != 0 {
		t.Errorf("adopted %v, and everybody lives", got)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE sip_owners SET seen_at = now() - interval '6 minutes'"); err != nil {
		t.Fatal(err)
	}
	if got := adopted(alive); len(got) != 0 {
		t.Errorf("adopted %v by one who was silent as long", got)
	}
	if got := adopted(silent); len(got) != 0 {
		t.Errorf("adopted %v by one who never gave a sign of life", got)
	}
	if _, err := alive.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := adopted(alive); len(got) != 1 {
		t.Errorf("adopted: length of got = %d, want 1", len(got))
	} else if got[0].CallID != orphan {
		t.Errorf("adopted: got[0].CallID = %v, want %v", got[0].CallID, orphan)
	}
	wants(t, "the dead one's news", false)(dead.End(t.Context(), orphan, journal.End{At: *instant(), Cause: call.NormalClearing, ByUs: false}))
	wants(t, "the end", true)(alive.End(t.Context(), orphan, journal.End{At: *instant(), Cause: call.Unspecified, ByUs: true}))
}

func TestPrune_OnlyWhatWasReadLongAgo(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	j := journal.New(pool, pool, uuid.New(), lease)
	read, unread, live := dial(t, j), dial(t, j), dial(t, j)
	for _, id := range []uuid.UUID{read, unread} {
		wants(t, "ended", true)(j.End(t.Context(), id, journal.End{At: instant().Add(-time.Hour), Cause: call.NormalClearing, ByUs: false}))
	}
	prune := func() {
		t.Helper()
		if _, err := j.Prune(t.Context(), "sip", time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	prune()
	if got := append(told(t, j, read), told(t, j, unread)...); len(got) != 2 {
		t.Errorf("news that nobody has read: %v", got)
	}
	if _, err := pool.Exec(t.Context(), "INSERT INTO feeds (trunk, cursor) VALUES ('sip', 1)"); err != nil {
		t.Fatal(err)
	}
	prune()
	if mine, theirs := told(t, j, read), told(t, j, unread); len(mine) != 0 {
		t.Errorf("news that were read: mine = %v, want none", mine)
	} else if len(theirs) != 1 {
		t.Errorf("news that were read: length of theirs = %d, want 1", len(theirs))
	}
	for id, want := range map[uuid.UUID]error{read: journal.ErrNone, unread: nil, live: nil} {
		if _, err := j.Find(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("find: %v, want %v", err, want)
		}
	}
}

func TestLiving_IsWhoGaveASignOfLifeLately(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	one, two, gone := journal.New(pool, pool, uuid.New(), lease), journal.New(pool, pool, uuid.New(), lease), uuid.New()
	for _, j := range []*journal.Journal{one, two, journal.New(pool, pool, gone, lease)} {
		if _, err := j.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), "UPDATE sip_owners SET seen_at = now() - interval '6 minutes' WHERE owner = $1", gone); err != nil {
		t.Fatal(err)
	}
	if n, err := one.Living(t.Context()); err != nil {
		t.Errorf("Living: %v", err)
	} else if n != 2 {
		t.Errorf("Living: n = %v, want 2", n)
	}
}
