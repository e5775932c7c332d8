package store_test

import (
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/store"
)

// A process can find an orphaned call and die before it hangs up the call. Later events do not
// report the orphan again, so another process must find it.
func TestDueHangups_ReturnsOrphansToEveryProcess(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	dead, living := newStore(pool), newStore(pool)
	place, mine, err := dead.ClaimEventStream(t.Context(), "sim")
	if err != nil {
		t.Fatalf("ClaimEventStream: %v", err)
	}
	if !mine {
		t.Fatal("ClaimEventStream: mine = false, want true")
	}
	orphan := uuid.New()
	for cursor := range int64(2) {
		next := store.StreamPosition{Stream: "a", Cursor: cursor + 1}
		events := store.Events{
			Guard: dead.MoveStreamPosition("sim", place, next), Calls: []uuid.UUID{orphan},
			Fold: func(map[uuid.UUID]*callstate.Call, bool) (store.Folded, error) {
				return store.Folded{Orphans: []uuid.UUID{orphan}}, nil
			},
		}
		if err := dead.ApplyEvents(t.Context(), events); err != nil {
			t.Fatal(err)
		}
		place = next
	}
	due := func() []store.Hangup {
		t.Helper()
		due, err := living.DueHangups(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return due
	}
	switch got := due(); {
	case len(got) != 1:
		t.Fatalf("length of got = %v, want 1", len(got))
	case got[0].CallID != orphan:
		t.Fatalf("got[0].CallID = %v, want %v", got[0].CallID, orphan)
	case !got[0].Orphan:
		t.Fatal("got[0].Orphan = false, want true")
	}
	if got := due(); len(got) != 0 {
		t.Errorf("DueHangups immediately after the first = %v, want none", got)
	}
	later := func() {
		t.Helper()
		if _, err := pool.Exec(t.Context(), "UPDATE orphaned_calls SET hangup_at = now()"); err != nil {
			t.Fatal(err)
		}
	}
	later()
	if got := due(); len(got) != 1 {
		t.Errorf("DueHangups later = %v, want the orphan again", got)
	}
	if err := living.ForgetOrphan(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	later()
	if got := due(); len(got) != 0 {
		t.Errorf("DueHangups after ForgetOrphan = %v, want none", got)
	}
}
