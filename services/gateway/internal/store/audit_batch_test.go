package store_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/page"
	"ringfence.dev/services/gateway/internal/audit"
)

// callEntry returns the audit entry of a call request that an API key has created.
func callEntry(workspaceID uuid.UUID, path string) audit.Entry {
	status := int32(202)
	return audit.Entry{
		PendingEntry: audit.PendingEntry{
			ID: uuid.Must(uuid.NewV7()), Actor: audit.Actor{Type: audit.APIKey, ID: "key", Name: "name"},
			Object:      audit.Object{Action: "call_request.create", Type: "call_request"},
			WorkspaceID: &workspaceID, RequestID: uuid.New(), Method: "POST", Route: "/v1/calls", Path: path,
		},
		Status: &status, Outcome: audit.Done, After: []byte(`{"id":"request ` + path + `"}`),
	}
}

// The path of one entry contains a NUL, which Postgres refuses. This must not affect the other
// entries of the same statement.
func TestRecordUnflushed_ConcurrentEntriesDoNotDependOnEachOther(t *testing.T) {
	t.Parallel()
	st, _ := newStore(t)
	workspaceID := uuid.New()
	const entries = 200
	errs := make([]error, entries+1)
	var all sync.WaitGroup
	for i := range errs {
		path := "/v1/calls/" + strconv.Itoa(i)
		if i == entries {
			path = "/v1/calls/\x00"
		}
		entry := callEntry(workspaceID, path)
		all.Go(func() { errs[i] = st.RecordUnflushed(t.Context(), entry) })
	}
	all.Wait()

	if errs[entries] == nil {
		t.Error("the entry with a NUL was stored")
	}
	for i, err := range errs[:entries] {
		if err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	found, err := st.WorkspaceEntries(t.Context(), workspaceID, audit.Filter{}, page.Request{Limit: entries + 1})
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]bool{}
	for _, entry := range found {
		objects[entry.Object.ID] = true
	}
	if len(found) != entries || len(objects) != entries {
		t.Errorf("%d entries of %d objects are stored, want %d of each", len(found), len(objects), entries)
	}
}

func TestRecordUnflushed_StoresTheSameEntryAsRecord(t *testing.T) {
	t.Parallel()
	st, pool := newStore(t)
	single, batched := uuid.New(), uuid.New()
	for i, outcome := range []audit.Outcome{audit.Done, audit.Unknown} {
		entry := callEntry(single, "/v1/calls")
		entry.Outcome = outcome
		if outcome == audit.Unknown {
			entry.Status, entry.After = nil, nil
		}
		if err := st.Record(t.Context(), entry); err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
		entry.ID, entry.WorkspaceID = uuid.Must(uuid.NewV7()), &batched
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := st.RecordUnflushed(t.Context(), entry); err != nil {
					t.Errorf("entry %d: %v", i, err)
				}
			})
		}
		both.Wait()
	}
	const differing = `SELECT count(*) FROM (
	SELECT to_jsonb(e) - 'id' - 'workspace_id' - 'occurred_at' - 'object_id' AS content FROM audit_entries e
	WHERE workspace_id = $1
	EXCEPT
	SELECT to_jsonb(e) - 'id' - 'workspace_id' - 'occurred_at' - 'object_id' FROM audit_entries e
	WHERE workspace_id = $2) AS difference`
	var count int
	if err := pool.QueryRow(t.Context(), differing, single, batched).Scan(&count); err != nil {
		t.Fatal(err)
	}
	if count != 0 {
		t.Errorf("%d entries differ", count)
	}
	const stored = `SELECT count(*) FROM audit_entries WHERE workspace_id = $1`
	if err := pool.QueryRow(t.Context(), stored, batched).Scan(&count); err != nil {
		t.Fatal(err)
	}
	if count != 2 {
		t.Errorf("%d entries are stored, want 2", count)
	}
}
