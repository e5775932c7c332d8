package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// insertQueue inserts queued deliveries, each of which was claimed once.
const insertQueue = `
WITH history AS (
    INSERT INTO deliveries (id, created_at, workspace_id, subscription_id, event_id, event_type, sequence, status)
    SELECT gen_random_uuid(), clock_timestamp(), $1, $2, gen_random_uuid(), 'call.completed', 1, 'queued' FROM generate_series(1, $3::int)
    RETURNING id, created_at, workspace_id, subscription_id, event_id, event_type, sequence
)
INSERT INTO delivery_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, sequence, attempt)
SELECT id, created_at, workspace_id, subscription_id, event_id, event_type, sequence, 1 FROM history RETURNING delivery_id`

// readEntries counts the index entries that were read from the tables deliveries and
// delivery_queue.
const readEntries = `SELECT sum(idx_tup_read) FROM pg_stat_user_indexes
    WHERE relname LIKE 'deliveries%' OR relname = 'delivery_queue'`

// A connection keeps the plan that Postgres made when the partition of the day was almost empty.
// This plan must also read few rows when the partition is full.
func TestComplete_ReadsFewIndexEntriesInAFullPartition(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	settings := r.pool.Config()
	settings.MaxConns = 1
	single, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer single.Close()
	st, sub := store.New(single, box(t)), r.subscribe(ws, "call.completed")
	today := time.Now().UTC().Truncate(24 * time.Hour)
	if _, err := st.AddDays(t.Context(), today.AddDate(0, 0, -7), today.AddDate(0, 0, 3)); err != nil {
		t.Fatal(err)
	}
	complete := func(rows, batch int) (read int) {
		t.Helper()
		found, err := single.Query(t.Context(), insertQueue, ws, sub, rows)
		if err != nil {
			t.Fatal(err)
		}
		var results []deliveries.Result
		for found.Next() {
			one := deliveries.Result{Attempt: 1, Outcome: deliveries.OutcomeDelivered, Response: deliveries.Response{Code: 200, At: time.Now()}}
			if err := found.Scan(&one.DeliveryID); err != nil {
				t.Fatal(err)
			}
			results = append(results, one)
		}
		for range 2 {
			if _, err := single.Exec(t.Context(), "SELECT pg_stat_force_next_flush()"); err != nil {
				t.Fatal(err)
			}
		}
		var before int
		if err := single.QueryRow(t.Context(), readEntries).Scan(&before); err != nil {
			t.Fatal(err)
		}
		for i := range batch { // the times of these results are distributed over the day
			results[i] = results[i*(rows/batch)]
		}
		done, err := st.Complete(t.Context(), results[:batch])
		if err != nil {
			t.Fatalf("Complete: %v", err)
		}
		wantEqual(t, "settled results", done.Settled, batch)
		for range 2 {
			if _, err := single.Exec(t.Context(), "SELECT pg_stat_force_next_flush()"); err != nil {
				t.Fatal(err)
			}
		}
		if err := single.QueryRow(t.Context(), readEntries).Scan(&read); err != nil {
			t.Fatal(err)
		}
		return read - before
	}
	complete(2000, 1) // Postgres makes the plan at this call, while the partition is small
	read := complete(20_000, 256)
	if read > 256*8 {
		t.Errorf("a completion of 256 of 20,000 deliveries reads %d index entries, want at most %d", read, 256*8)
	}
	if read < 256 {
		t.Errorf("a completion of 256 deliveries reads %d index entries, want at least 256", read)
	}
}
