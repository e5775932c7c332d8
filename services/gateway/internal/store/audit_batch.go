package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/gateway/internal/audit"
)

// maxEntries limits the number of audit entries in one statement. entriesTimeout limits the
// duration of the statement. The timeout is short, because later entries wait for the statement.
const (
	maxEntries     = 64
	entriesTimeout = 2 * time.Second
)

// entryBatcher combines concurrent calls of RecordUnflushed into one statement, because most of the
// cost of a single entry is its transaction. At most one goroutine stores entries at a time.
type entryBatcher struct {
	mu      sync.Mutex
	running bool // true while a goroutine stores the waiting entries
	waiting []waitingEntry
}

type waitingEntry struct {
	entry  audit.Entry
	result chan error // the channel is buffered, so that sending does not block after the caller has returned
}

// RecordUnflushed stores an audit entry that has no pending entry. If Postgres is killed within a
// second, the entry can be lost. The end of ctx does not stop the statement.
func (s *Store) RecordUnflushed(ctx context.Context, entry audit.Entry) error {
	waiting := waitingEntry{entry: entry, result: make(chan error, 1)}
	s.entries.mu.Lock()
	s.entries.waiting = append(s.entries.waiting, waiting)
	running := s.entries.running
	s.entries.running = true
	s.entries.mu.Unlock()
	if !running {
		go s.recordWaiting(context.WithoutCancel(ctx))
	}
	select {
	case err := <-waiting.result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("record audit entry %s: %w", entry.ID, ctx.Err())
	}
}

// recordWaiting stores the waiting entries until none is left.
func (s *Store) recordWaiting(ctx context.Context) {
	for {
		s.entries.mu.Lock()
		batch := s.entries.waiting[:min(len(s.entries.waiting), maxEntries)]
		s.entries.waiting = s.entries.waiting[len(batch):]
		s.entries.running = len(batch) > 0
		s.entries.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		s.recordBatch(ctx, batch)
	}
}

// recordBatch stores a batch. If the statement fails, recordBatch stores each entry with its own
// statement, so that a value that Postgres refuses affects only its own entry.
func (s *Store) recordBatch(ctx context.Context, batch []waitingEntry) {
	err := s.recordTogether(ctx, batch)
	if err == nil || len(batch) == 1 {
		for _, w := range batch {
			w.result <- err
		}
		return
	}
	for _, w := range batch {
		go func() { w.result <- s.recordTogether(ctx, []waitingEntry{w}) }()
	}
}

func (s *Store) recordTogether(ctx context.Context, batch []waitingEntry) error {
	ctx, cancel := context.WithTimeout(ctx, entriesTimeout)
	defer cancel()
	if _, err := s.pool.Exec(ctx, insertUnflushedEntries, entriesArgs(batch)); err != nil {
		return fmt.Errorf("record %d audit entries: %w", len(batch), err)
	}
	return nil
}

const insertUnflushedEntries = `INSERT INTO audit_entries (` + pendingColumns + `, status, outcome, after, occurred_at)
SELECT id, operator, actor_type, actor_id, actor_name, action, object_type, object_id, workspace_id,
	request_id, method, route, path, before::json, status, outcome, after::json, CASE WHEN ` + unflushed + ` THEN now() END
FROM unnest(@ids::uuid[], @operators::text[], @actor_types::text[], @actor_ids::text[], @actor_names::text[],
	@actions::text[], @object_types::text[], @object_ids::text[], @workspaces::uuid[], @requests::uuid[],
	@methods::text[], @routes::text[], @paths::text[], @befores::text[], @statuses::int[], @outcomes::text[],
	@afters::text[]) AS entry (id, operator, actor_type, actor_id, actor_name, action, object_type, object_id,
	workspace_id, request_id, method, route, path, before, status, outcome, after)
ON CONFLICT (id) DO NOTHING`

func entriesArgs(batch []waitingEntry) pgx.NamedArgs {
	n := len(batch)
	ids, workspaces, requests := make([]uuid.UUID, n), make([]*uuid.UUID, n), make([]uuid.UUID, n)
	operators, actorTypes := make([]string, n), make([]string, n)
	actorIDs, actorNames := make([]string, n), make([]string, n)
	actions, objectTypes, objectIDs := make([]string, n), make([]string, n), make([]string, n)
	methods, routes, paths, outcomes := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	befores, afters, statuses := make([]*string, n), make([]*string, n), make([]*int32, n)
	for i, w := range batch {
		e := w.entry.Complete()
		ids[i], workspaces[i], requests[i], operators[i] = e.ID, e.WorkspaceID, e.RequestID, e.Operator
		actorTypes[i], actorIDs[i], actorNames[i] = string(e.Actor.Type), e.Actor.ID, e.Actor.Name
		actions[i], objectTypes[i], objectIDs[i] = e.Action, e.Object.Type, e.Object.ID
		methods[i], routes[i], paths[i] = e.Method, e.Route, e.Path
		statuses[i], outcomes[i] = e.Status, string(e.Outcome)
		befores[i], afters[i] = textOrNull(e.Before), textOrNull(e.After)
	}
	return pgx.NamedArgs{
		"ids": ids, "operators": operators, "actor_types": actorTypes, "actor_ids": actorIDs, "actor_names": actorNames,
		"actions": actions, "object_types": objectTypes, "object_ids": objectIDs, "workspaces": workspaces,
		"requests": requests, "methods": methods, "routes": routes, "paths": paths, "befores": befores,
		"statuses": statuses, "outcomes": outcomes, "afters": afters,
	}
}

func textOrNull(document []byte) *string {
	if len(document) == 0 {
		return nil
	}
	text := string(document)
	return &text
}
