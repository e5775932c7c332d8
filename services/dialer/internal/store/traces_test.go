package store

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/siptrace"
)

func TestMessages_ReturnsTheMessagesOfAllProcesses(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: Migrations})
	s := NewTraces(pool, time.Minute)
	s.wait = 0
	first, second, trunk := uuid.New(), uuid.New(), uuid.New()
	for _, owner := range []uuid.UUID{first, second} {
		if _, err := pool.Exec(t.Context(), "INSERT INTO sip_leg_owners (owner) VALUES ($1)", owner); err != nil {
			t.Fatal(err)
		}
	}
	all, missing, err := s.Messages(t.Context(), trunk, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 0 {
		t.Errorf("messages = %d, want 0", len(all))
	}
	if missing != 2 {
		t.Errorf("processes that did not answer = %d, want 2", missing)
	}
	at := time.Date(2026, 6, 4, 9, 0, 0, 0, time.UTC)
	message := func(callID string, at time.Time) siptrace.Message {
		peer := netip.MustParseAddrPort("192.0.2.2:5060")
		return siptrace.Message{At: at, Transport: "UDP", Local: peer, Peer: peer, CallID: callID, Data: []byte("\x00\xff")}
	}
	go func() { // the first process answers the request twice
		for t.Context().Err() == nil {
			pending, err := s.Pending(t.Context(), first)
			if err != nil || len(pending) == 0 {
				continue
			}
			for range 2 {
				answer := []siptrace.Message{message("late", at.Add(time.Second)), message(pending[0].CallID, at)}
				_ = s.Answer(t.Context(), pending[0].ID, first, answer)
			}
			return
		}
	}()
	s.wait = time.Minute
	if _, err := pool.Exec(t.Context(), "DELETE FROM sip_leg_owners WHERE owner = $1", second); err != nil {
		t.Fatal(err)
	}
	all, missing, err = s.Messages(t.Context(), trunk, "wanted")
	if err != nil {
		t.Fatal(err)
	}
	if missing != 0 {
		t.Errorf("processes that did not answer = %d, want 0", missing)
	}
	want := []siptrace.Message{message("wanted", at), message("late", at.Add(time.Second))}
	byValue := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(want, all, byValue); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	var left int
	const rows = "SELECT (SELECT count(*) FROM sip_trace_requests) + (SELECT count(*) FROM sip_trace_answers)"
	if err := pool.QueryRow(t.Context(), rows).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("rows left = %d, want 0", left)
	}
}

func TestDeleteOld_DeletesTraceRequestsOlderThanAMinute(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: Migrations})
	s, owner := NewTraces(pool, time.Minute), uuid.New()
	for _, age := range []string{"2 minutes", "0"} {
		id := uuid.New()
		_, err := pool.Exec(t.Context(), `INSERT INTO sip_trace_requests (request_id, trunk_id, sip_call_id, requested_at)
			VALUES ($1, gen_random_uuid(), '', now() - $2::interval)`, id, age)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Answer(t.Context(), id, owner, []siptrace.Message{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteOld(t.Context()); err != nil {
		t.Fatalf("DeleteOld: %v", err)
	}
	for _, table := range []string{"sip_trace_requests", "sip_trace_answers"} {
		var got int
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != 1 {
			t.Errorf("rows in %s = %d, want 1", table, got)
		}
	}
}
