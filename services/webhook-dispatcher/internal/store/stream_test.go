package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// firstCursor returns the cursor before the first event.
func firstCursor(t *testing.T, st *store.Store) store.StreamCursor {
	t.Helper()
	timeline, err := st.Timeline(t.Context())
	if err != nil {
		t.Fatalf("Timeline: %v", err)
	}
	return store.StreamCursor{IngestedAt: time.Now(), Timeline: timeline}
}

// readStream returns the events of the workspace after the cursor.
func (r *fixture) readStream(ws uuid.UUID, after store.StreamCursor, types ...string) []store.StreamEvent {
	r.t.Helper()
	var all []store.StreamEvent
	for {
		limits := store.StreamPage{Types: types, Limit: 3, MaxBytes: 1 << 20}
		page, _, err := r.store.StreamEvents(r.t.Context(), ws, after, limits)
		if err != nil {
			r.t.Fatalf("StreamEvents: %v", err)
		}
		if len(page) == 0 {
			return all
		}
		all, after = append(all, page...), page[len(page)-1].StreamCursor
	}
}

func streamIDs(events []store.StreamEvent) (ids []uuid.UUID) {
	for _, ev := range events {
		ids = append(ids, ev.EventID)
	}
	return ids
}

func TestStream_EventsHaveTheOrderOfTheBatch(t *testing.T) {
	t.Parallel()
	r, ws, other := newFixture(t), uuid.New(), uuid.New()
	r.subscribe(ws, "call.completed")
	var events []deliveries.Event
	var want []uuid.UUID
	for i := range 20 {
		owner := ws
		if i%3 == 0 {
			owner = other
		}
		ev := event(owner, uuid.New(), 1, "call.ringing")
		if events = append(events, ev); owner == ws {
			want = append(want, ev.ID)
		}
	}
	start, err := r.store.StreamHead(t.Context(), ws)
	if err != nil {
		t.Fatalf("StreamHead: %v", err)
	}
	r.ingest(nil, append(events, events[:5]...)...)
	r.ingest(nil, events...) // the consumer reads the same records again
	if got := streamIDs(r.readStream(ws, start)); !slices.Equal(got, want) {
		t.Errorf("stream = %v, want %v", got, want)
	}
	cursor, err := r.store.StreamCursor(t.Context(), ws, want[4])
	if err != nil {
		t.Fatalf("StreamCursor: %v", err)
	}
	if got := streamIDs(r.readStream(ws, cursor)); !slices.Equal(got, want[5:]) {
		t.Errorf("stream after the fifth event = %v, want %v", got, want[5:])
	}
	if _, err := r.store.StreamCursor(t.Context(), other, want[4]); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("StreamCursor of another workspace = %v, want ErrNotFound", err)
	}
	if body := string(r.readStream(ws, start)[0].Body); body == "" {
		t.Error("the body of an event without a subscription is empty")
	}
	if body := r.readStream(ws, start, "call.busy")[0].Body; len(body) != 0 {
		t.Errorf("body of another type = %q, want none", body)
	}
}

// The first transaction has inserted its event but has not committed. The second transaction must
// not make its own event visible before the first transaction ends.
func TestStream_ReaderDoesNotSkipAnEventThatCommitsLate(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		r, ws := newFixture(t), uuid.New()
		first, second := event(ws, uuid.New(), 1, "call.ringing"), event(ws, uuid.New(), 1, "call.ringing")
		tx, err := r.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.store.Ingest(t.Context(), tx, first); err != nil {
			t.Fatalf("Ingest: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			done <- pg.InTx(context.WithoutCancel(t.Context()), r.pool, func(tx pgx.Tx) error {
				_, err := r.store.Ingest(context.WithoutCancel(t.Context()), tx, second)
				return err
			})
		}()
		r.awaitLocked()
		if got := r.readStream(ws, firstCursor(t, r.store)); len(got) != 0 {
			t.Errorf("stream before the commit = %v, want none", streamIDs(got))
		}
		want := []uuid.UUID{second.ID}
		if commits {
			want = []uuid.UUID{first.ID, second.ID}
			err = tx.Commit(t.Context())
		} else {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatalf("second Ingest: %v", err)
		}
		if got := streamIDs(r.readStream(ws, firstCursor(t, r.store))); !slices.Equal(got, want) {
			t.Errorf("stream, first commits %v = %v, want %v", commits, got, want)
		}
	}
}

// errRolledBack makes storeRandomly roll a transaction back.
var errRolledBack = errors.New("rolled back")

// storeRandomly stores batches of random workspaces, and rolls some of them back. It returns the
// number of stored events of each workspace.
func storeRandomly(t *testing.T, st *store.Store, pool *pgxpool.Pool, workspaces []uuid.UUID) map[uuid.UUID]int {
	t.Helper()
	stored := map[uuid.UUID]int{}
	for range 25 {
		var batch []deliveries.Event
		for range 1 + rand.IntN(4) {
			batch = append(batch, event(workspaces[rand.IntN(len(workspaces))], uuid.New(), 1, "call.ringing"))
		}
		err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := st.Ingest(t.Context(), tx, batch...); err != nil {
				return err
			}
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			if rand.IntN(5) == 0 {
				return errRolledBack
			}
			return nil
		})
		switch {
		case err == nil:
			for _, ev := range batch {
				stored[ev.WorkspaceID]++
			}
		case !errors.Is(err, errRolledBack):
			t.Errorf("Ingest: %v", err)
		}
	}
	return stored
}

// followStream reads the stream until writersDone is true and no event is left. It returns the
// number of events.
func followStream(t *testing.T, st *store.Store, ws uuid.UUID, writersDone *atomic.Bool) int {
	t.Helper()
	cursor, seen := firstCursor(t, st), map[uuid.UUID]bool{}
	for {
		last := writersDone.Load()
		page, _, err := st.StreamEvents(t.Context(), ws, cursor, store.StreamPage{Limit: 5, MaxBytes: 1 << 20})
		if err != nil {
			t.Errorf("StreamEvents: %v", err)
			return len(seen)
		}
		for _, ev := range page {
			if seen[ev.EventID] {
				t.Errorf("event %s was read twice", ev.EventID)
			}
			seen[ev.EventID], cursor = true, ev.StreamCursor
		}
		if last && len(page) == 0 {
			return len(seen)
		}
	}
}

// Eight writers store events of three workspaces, while a reader of each workspace follows the
// stream.
func TestStream_ReaderSeesEveryEventOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	settings := r.pool.Config()
	settings.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	st := store.New(pool, box(t))
	workspaces := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	stored, seen := make([]map[uuid.UUID]int, 8), make([]int, len(workspaces))
	var writersDone atomic.Bool
	var writers, readers sync.WaitGroup
	for i := range stored {
		writers.Go(func() { stored[i] = storeRandomly(t, st, pool, workspaces) })
	}
	for i, ws := range workspaces {
		readers.Go(func() { seen[i] = followStream(t, st, ws, &writersDone) })
	}
	writers.Wait()
	writersDone.Store(true)
	readers.Wait()
	for i, ws := range workspaces {
		total := 0
		for _, counts := range stored {
			total += counts[ws]
		}
		wantEqual(t, "events that the reader saw", seen[i], total)
	}
	const deadlocks = `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`
	wantEqual(t, "deadlocks", r.count(deadlocks), 0)
}

func TestStreamEvents_LimitsTheBytesOfAPage(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	start := firstCursor(t, r.store)
	var events []deliveries.Event
	for range 5 {
		ev := event(ws, uuid.New(), 1, "call.ringing")
		ev.Body = []byte(`"` + strings.Repeat("x", 98) + `"`)
		events = append(events, ev)
	}
	r.ingest(nil, events...)
	for _, tt := range []struct {
		name        string
		limit       store.StreamPage
		events      int
		wantMore    bool
		wantNoBytes bool
	}{
		{name: "bytes", limit: store.StreamPage{Limit: 9, MaxBytes: 250}, events: 3, wantMore: true},
		{name: "one event exceeds the limit", limit: store.StreamPage{Limit: 9, MaxBytes: 1}, events: 1, wantMore: true},
		{name: "number", limit: store.StreamPage{Limit: 4, MaxBytes: 1000}, events: 4, wantMore: true},
		{name: "no limit is reached", limit: store.StreamPage{Limit: 9, MaxBytes: 500}, events: 5},
		{
			name: "bodies of other types do not count", events: 5, wantNoBytes: true,
			limit: store.StreamPage{Limit: 9, MaxBytes: 1, Types: []string{"call.busy"}},
		},
	} {
		page, more, err := r.store.StreamEvents(t.Context(), ws, start, tt.limit)
		if err != nil {
			t.Fatalf("%s: StreamEvents: %v", tt.name, err)
		}
		wantEqual(t, tt.name+": events", len(page), tt.events)
		wantEqual(t, tt.name+": more", more, tt.wantMore)
		for _, ev := range page {
			wantEqual(t, tt.name+": body is empty", len(ev.Body) == 0, tt.wantNoBytes)
		}
	}
}

// A client that has received no event resumes at the position at which it connected.
func TestStreamHead_HasAnIDBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	head := func() store.StreamCursor {
		t.Helper()
		cursor, err := r.store.StreamHead(t.Context(), ws)
		if err != nil {
			t.Fatalf("StreamHead: %v", err)
		}
		return cursor
	}
	resume := func(id uuid.UUID) []uuid.UUID {
		t.Helper()
		cursor, err := r.store.StreamCursor(t.Context(), ws, id)
		if err != nil {
			t.Fatalf("StreamCursor: %v", err)
		}
		wantEqual(t, "id of the cursor", cursor.EventID, id)
		return streamIDs(r.readStream(ws, cursor))
	}
	empty := head()
	first, second := event(ws, uuid.New(), 1, "call.ringing"), event(ws, uuid.New(), 1, "call.ringing")
	r.ingest(nil, first)
	wantEqual(t, "id of the head", head().EventID, first.ID)
	r.ingest(nil, second)
	if got, want := resume(empty.EventID), []uuid.UUID{first.ID, second.ID}; !slices.Equal(got, want) {
		t.Errorf("stream after the empty head = %v, want %v", got, want)
	}
	if _, err := r.store.StreamCursor(t.Context(), uuid.New(), empty.EventID); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("StreamCursor of another workspace = %v, want ErrNotFound", err)
	}
	if _, err := pgtest.Owner(t, r.pool, schema).Exec(t.Context(), `DELETE FROM stream_events`); err != nil {
		t.Fatal(err)
	}
	expired := head()
	third := event(ws, uuid.New(), 1, "call.ringing")
	r.ingest(nil, third)
	if got, want := resume(expired.EventID), []uuid.UUID{third.ID}; !slices.Equal(got, want) {
		t.Errorf("stream after a head that has expired = %v, want %v", got, want)
	}
}

// failOver simulates a failover. It deletes all events after the given position of every workspace,
// and changes the timeline of the database.
func (r *fixture) failOver(position int64) {
	r.t.Helper()
	owner := pgtest.Owner(r.t, r.pool, schema)
	if _, err := owner.Exec(r.t.Context(), `
		CREATE OR REPLACE FUNCTION database_timeline() RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'another' $$;
		DELETE FROM events e USING stream_events s WHERE e.id = s.event_id AND s.position > `+fmt.Sprint(position)+`;
		DELETE FROM stream_events WHERE position > `+fmt.Sprint(position)+`;
		UPDATE stream_heads SET position = least(position, `+fmt.Sprint(position)+`)`); err != nil {
		r.t.Fatal(err)
	}
}

// Clients have received five events. Then the database loses the last three events. The consumer
// stores them again in another order, with an event that no client has received.
func TestStreamCursor_ClientMissesNoEventAfterTheDatabaseLostEvents(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	var ids []uuid.UUID
	var events []deliveries.Event
	for range 5 {
		ev := event(ws, uuid.New(), 1, "call.ringing")
		ids, events = append(ids, ev.ID), append(events, ev)
	}
	r.ingest(nil, events...)
	before := firstCursor(t, r.store)
	r.failOver(2)

	_, _, err := r.store.StreamEvents(t.Context(), ws, before, store.StreamPage{Limit: 9, MaxBytes: 1})
	if !errors.Is(err, store.ErrTimelineChanged) {
		t.Errorf("StreamEvents with a cursor of the old timeline = %v, want ErrTimelineChanged", err)
	}
	if _, err := r.store.StreamCursor(t.Context(), ws, ids[4]); !errors.Is(err, store.ErrEventsMissing) {
		t.Errorf("StreamCursor of a lost event = %v, want ErrEventsMissing", err)
	}
	if err := r.store.RecordTimeline(t.Context()); err != nil {
		t.Fatalf("RecordTimeline: %v", err)
	}
	if _, err := r.store.StreamCursor(t.Context(), ws, ids[4]); !errors.Is(err, store.ErrEventsMissing) {
		t.Errorf("StreamCursor of a lost event, timeline recorded = %v, want ErrEventsMissing", err)
	}

	unseen, later := event(ws, uuid.New(), 1, "call.ringing"), event(ws, uuid.New(), 1, "call.ringing")
	later.CreatedAt = time.Now().Add(time.Hour)
	r.ingest(nil, events[4], unseen)
	r.ingest(nil, events[3], events[2], later)
	all := []uuid.UUID{ids[0], ids[1], ids[4], unseen.ID, ids[3], ids[2], later.ID}
	for i, wantFrom := range []int{1, 2, 2, 2, 2, 2, 7} {
		cursor, err := r.store.StreamCursor(t.Context(), ws, all[i])
		if err != nil {
			t.Fatalf("StreamCursor: %v", err)
		}
		if got := streamIDs(r.readStream(ws, cursor)); !slices.Equal(got, all[wantFrom:]) {
			t.Errorf("stream after event %d = %v, want %v", i, got, all[wantFrom:])
		}
	}

	if _, err := r.pool.Exec(t.Context(), `
		UPDATE database_timelines SET seen_at = now() - interval '11 minutes' WHERE timeline = 'another'`); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.StreamCursor(t.Context(), ws, uuid.New()); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("StreamCursor of an unknown event, later = %v, want ErrNotFound", err)
	}
}

// All events of a workspace were lost, so no position from before the failover is stored.
func TestStreamCursor_IsBeforeTheFirstEventIfAllEventsWereLost(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	lost, unseen := event(ws, uuid.New(), 1, "call.ringing"), event(ws, uuid.New(), 1, "call.ringing")
	r.failOver(0)
	r.ingest(nil, unseen, lost)
	cursor, err := r.store.StreamCursor(t.Context(), ws, lost.ID)
	if err != nil {
		t.Fatalf("StreamCursor: %v", err)
	}
	if got, want := streamIDs(r.readStream(ws, cursor)), []uuid.UUID{unseen.ID, lost.ID}; !slices.Equal(got, want) {
		t.Errorf("stream = %v, want %v", got, want)
	}
}

func TestStream_ErasedEventHasNoBody(t *testing.T) {
	t.Parallel()
	r, ws, call := newFixture(t), uuid.New(), uuid.New()
	ev := event(ws, call, 1, "call.completed")
	r.ingest(nil, ev)
	if err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		return r.store.EraseCall(
			t.Context(),
			tx,
			store.Erasure{ID: uuid.New(), WorkspaceID: ws, CallID: call, EventIDs: []uuid.UUID{ev.ID}},
		)
	}); err != nil {
		t.Fatalf("EraseCall: %v", err)
	}
	got := r.readStream(ws, firstCursor(t, r.store))
	if len(got) != 1 {
		t.Fatalf("events = %d, want 1", len(got))
	}
	if len(got[0].Body) != 0 {
		t.Errorf("body = %q, want none", got[0].Body)
	}
}

func TestStream_TestEventHasNoPosition(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	ev, err := deliveries.NewTest(uuid.New(), ws, sub, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.store.EnqueueTest(t.Context(), sub, ev); err != nil {
		t.Fatalf("EnqueueTest: %v", err)
	}
	wantEqual(t, "stored bodies", r.count(`SELECT count(*) FROM events`), 1)
	wantEqual(t, "events in the stream", r.count(`SELECT count(*) FROM stream_events`), 0)
}

// Twenty clients of two replicas connect at the same time.
func TestOpenStream_ConcurrentCallsDoNotExceedTheLimit(t *testing.T) {
	t.Parallel()
	r, ws, other := newFixture(t), uuid.New(), uuid.New()
	replicas := []*store.Store{r.store, store.New(r.pool, box(t))}
	ids := make([]uuid.UUID, 20)
	var opened atomic.Int64
	var all sync.WaitGroup
	for i := range ids {
		ids[i] = uuid.New()
		all.Go(func() {
			ok, err := replicas[i%2].OpenStream(context.WithoutCancel(t.Context()), ids[i], ws, time.Minute, 10)
			if err != nil {
				t.Errorf("OpenStream: %v", err)
			}
			if ok {
				opened.Add(1)
			}
		})
	}
	all.Wait()
	wantEqual(t, "opened streams", opened.Load(), 10)
	open := func(workspace uuid.UUID) bool {
		t.Helper()
		ok, err := r.store.OpenStream(t.Context(), uuid.New(), workspace, time.Minute, 10)
		if err != nil {
			t.Fatalf("OpenStream: %v", err)
		}
		return ok
	}
	wantEqual(t, "another workspace has its own limit", open(other), true)
	for _, id := range ids {
		if err := r.store.CloseStreams(t.Context(), id); err != nil {
			t.Fatalf("CloseStreams: %v", err)
		}
	}
	wantEqual(t, "opened after the others were closed", open(ws), true)
}

// A replica that was killed does not renew its streams.
func TestOpenStream_ExpiredLeaseDoesNotCount(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	killed, alive := uuid.New(), uuid.New()
	for _, id := range []uuid.UUID{killed, alive} {
		if _, err := r.store.OpenStream(t.Context(), id, ws, time.Minute, 2); err != nil {
			t.Fatalf("OpenStream: %v", err)
		}
	}
	if _, err := r.pool.Exec(
		t.Context(),
		`UPDATE open_streams SET expires_at = now() - interval '2 minutes'`,
	); err != nil {
		t.Fatal(err)
	}
	if err := r.store.RenewStreams(t.Context(), []uuid.UUID{alive}, []uuid.UUID{ws}, time.Minute); err != nil {
		t.Fatalf("RenewStreams: %v", err)
	}
	wantEqual(t, "rows", r.count(`SELECT count(*) FROM open_streams`), 1)
	for _, want := range []bool{true, false} {
		ok, err := r.store.OpenStream(t.Context(), uuid.New(), ws, time.Minute, 2)
		if err != nil {
			t.Fatalf("OpenStream: %v", err)
		}
		wantEqual(t, "opened", ok, want)
	}
}

func TestStream_ReadsFewDatabasePages(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	if _, err := r.store.AddDays(t.Context(), today.AddDate(0, 0, -3), today.AddDate(0, 0, 3)); err != nil {
		t.Fatal(err)
	}
	owner := pgtest.Owner(t, r.pool, schema)
	for _, sql := range []string{
		`INSERT INTO stream_events (workspace_id, position, ingested_at, event_id, event_created_at, type)
		SELECT md5((n % 100)::text)::uuid, n, now() - (300000 - n) * interval '1 second', md5(n || ' event')::uuid,
		    now() - (300000 - n) * interval '1 second', 'call.ringing'
		FROM generate_series(1, 300000) AS n`,
		`INSERT INTO stream_heads (workspace_id, position)
		SELECT workspace_id, max(position) FROM stream_events GROUP BY workspace_id`,
		`VACUUM (ANALYZE) stream_events, stream_heads, events`,
	} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var ws, id uuid.UUID
	if err := r.pool.QueryRow(t.Context(), `SELECT workspace_id, event_id FROM stream_events WHERE position = 150000`).
		Scan(&ws, &id); err != nil {
		t.Fatal(err)
	}
	watched, seen := pgtest.Watch(t, r.pool)
	st := store.New(watched, box(t))
	old, err := r.store.StreamCursor(t.Context(), ws, id)
	if err != nil {
		t.Fatalf("StreamCursor: %v", err)
	}
	limits := store.StreamPage{Limit: 16, MaxBytes: 1 << 20}
	for name, read := range map[string]func() error{
		"the head":   func() error { _, err := st.StreamHead(t.Context(), ws); return err },
		"the cursor": func() error { _, err := st.StreamCursor(t.Context(), ws, id); return err },
		"a page of old events": func() error {
			_, _, err := st.StreamEvents(t.Context(), ws, old, limits)
			return err
		},
		"no new event": func() error {
			newest := store.StreamCursor{Position: 300000, IngestedAt: time.Now(), Timeline: old.Timeline}
			_, _, err := st.StreamEvents(t.Context(), ws, newest, limits)
			return err
		},
		"the positions of ten workspaces": func() error {
			_, _, err := st.StreamPositions(t.Context(), []uuid.UUID{ws, id, ws, ws, ws, ws, ws, ws, ws, ws})
			return err
		},
	} {
		seen.Forget()
		if err := read(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		pages, plans := seen.Pages(t, pgtest.GenericPlan)
		if pages > 150 {
			t.Errorf("%s: pages read = %d, want at most 150; plan %s", name, pages, plans)
		}
	}
}
