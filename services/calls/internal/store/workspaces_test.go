package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/calls/internal/store"
)

// A consumer's batch can contain an event that ApplySetting has already stored. Such an event must
// not delay the next change of the workspace until the batch commits.
func TestKeepWorkspace_RepeatedVersionLocksNoRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "calls", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "calls", FS: store.Migrations})
	st, stored := store.New(pool, nil), store.Workspace{ID: uuid.New(), Version: 1, Currency: "USD"}
	if err := st.ApplyWorkspace(t.Context(), stored); err != nil {
		t.Fatalf("apply version 1: %v", err)
	}
	batch, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("begin batch: %v", err)
	}
	t.Cleanup(func() { _ = batch.Rollback(context.Background()) })
	if err := st.KeepWorkspace(t.Context(), batch, stored); err != nil {
		t.Fatalf("store the same version in the batch: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := st.ApplyWorkspace(ctx, store.Workspace{ID: stored.ID, Version: 2, Currency: "USD"}); err != nil {
		t.Errorf("apply version 2 before the batch commits: %v", err)
	}
	// If storing version 2 had waited for the batch, Postgres would have ended the idle session of
	// the batch, and this commit would fail.
	if err := batch.Commit(t.Context()); err != nil {
		t.Errorf("commit the batch: %v", err)
	}
}
