package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
)

// Workspace is the part of a workspace that the service `calls` stores.
type Workspace struct {
	ID           uuid.UUID
	Version      int64
	Currency     string
	Destinations []string
	// KeepCallsDays and KeepTranscriptsDays are retention periods in days. If a period is 0, the
	// default is used.
	KeepCallsDays       int32
	KeepTranscriptsDays int32
	// Transcripts reports whether transcripts are stored and shown.
	Transcripts bool
	// Recordings reports whether the workspace's customers can read recordings.
	Recordings bool
}

// WorkspaceOf converts the gateway's message. It returns an error if this build cannot read the
// message.
func WorkspaceOf(ev *eventv1.WorkspaceEvent) (Workspace, error) {
	id, err := uuid.Parse(ev.GetWorkspaceId())
	if err != nil {
		return Workspace{}, fmt.Errorf("read workspace id: %w", err)
	}
	state := cmp.Or(ev.GetWorkspace(), ev.GetTestWorkspace())
	if state == nil {
		return Workspace{}, errors.New("the workspace event is newer than this build")
	}
	return Workspace{
		ID: id, Version: ev.GetVersion(), Currency: state.GetCurrency(), Destinations: state.GetDestinations(),
		KeepCallsDays: state.GetKeepCallsDays(), KeepTranscriptsDays: state.GetKeepTranscriptsDays(),
		Transcripts: state.GetTranscriptsEnabled(), Recordings: state.GetRecordingsEnabled(),
	}, nil
}

// keepWorkspace excludes versions that are already stored. ON CONFLICT alone would lock the rows of
// these workspaces until the commit.
const keepWorkspace = `
INSERT INTO workspaces AS w (id, version, currency, destinations, keep_calls_days, keep_transcripts_days, transcripts,
    recordings)
SELECT @id::uuid, @version::bigint, @currency::text, @destinations::text[], nullif(@calls_days::int, 0),
    nullif(@transcripts_days::int, 0), @transcripts::boolean, @recordings::boolean
WHERE NOT EXISTS (SELECT FROM workspaces WHERE id = @id AND version >= @version)
ON CONFLICT (id) DO UPDATE SET version = EXCLUDED.version, currency = EXCLUDED.currency,
    destinations = EXCLUDED.destinations, keep_calls_days = EXCLUDED.keep_calls_days,
    keep_transcripts_days = EXCLUDED.keep_transcripts_days, transcripts = EXCLUDED.transcripts,
    recordings = EXCLUDED.recordings
WHERE w.version < EXCLUDED.version`

// ApplyWorkspace commits a workspace for ApplySetting. If it returns nil, w.Version or a newer
// version is stored.
func (s *Store) ApplyWorkspace(ctx context.Context, w Workspace) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return s.KeepWorkspace(ctx, tx, w) })
}

// KeepWorkspace stores a workspace. If w.Version or a newer version is already stored, nothing
// changes.
func (s *Store) KeepWorkspace(ctx context.Context, tx pgx.Tx, w Workspace) error {
	if w.Destinations == nil {
		w.Destinations = []string{}
	}
	_, err := tx.Exec(ctx, keepWorkspace, pgx.NamedArgs{
		"id": w.ID, "version": w.Version, "currency": w.Currency, "destinations": w.Destinations,
		"calls_days": w.KeepCallsDays, "transcripts_days": w.KeepTranscriptsDays,
		"transcripts": w.Transcripts, "recordings": w.Recordings,
	})
	if err != nil {
		return fmt.Errorf("keep workspace %s: %w", w.ID, err)
	}
	return nil
}
