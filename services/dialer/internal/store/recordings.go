package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent"
)

// ErrRefused is returned if a call must not be recorded: the call has ended, its person was erased,
// or the call was recorded before.
var ErrRefused = errors.New("the call is not to be recorded")

// Recordings stores the states of recordings, for a process that writes files into one directory
// (the spool). A recording changes from `recording` to `recorded` and then to `stored`. `leaving`
// means that it is being deleted. `lost` means that its file cannot be reached.
type Recordings struct {
	pool  *pgxpool.Pool
	spool uuid.UUID
}

// NewRecordings returns a store for a process that writes files into the given spool.
func NewRecordings(pool *pgxpool.Pool, spool uuid.UUID) *Recordings {
	return &Recordings{pool: pool, spool: spool}
}

// beginRecording inserts no row if the call is erased. It locks the row of the call, so that an
// erasure cannot run at the same time.
const beginRecording = `
INSERT INTO recordings (call_id, workspace_id, key, spool)
SELECT c.call_id, c.workspace_id, @key, @spool FROM calls c
WHERE c.call_id = @call_id AND c.workspace_id = @workspace_id AND (c.ended_at IS NULL OR @ended::boolean)
	AND NOT c.erased FOR SHARE
ON CONFLICT DO NOTHING
RETURNING call_id`

// Begin stores that a live call is being recorded into a file of the spool. It returns ErrRefused
// if the call must not be recorded.
func (s *Recordings) Begin(ctx context.Context, workspaceID, callID uuid.UUID, key string) error {
	return s.begin(ctx, workspaceID, callID, key, false)
}

// BeginEnded does the same as Begin for a call that has ended.
func (s *Recordings) BeginEnded(ctx context.Context, workspaceID, callID uuid.UUID, key string) error {
	return s.begin(ctx, workspaceID, callID, key, true)
}

func (s *Recordings) begin(ctx context.Context, workspaceID, callID uuid.UUID, key string, ended bool) error {
	args := pg.Args{"workspace_id": workspaceID, "call_id": callID, "key": key, "spool": s.spool, "ended": ended}
	_, err := pg.Value[uuid.UUID](ctx, s.pool, beginRecording, args)
	if errors.Is(err, pg.ErrNotFound) {
		return ErrRefused
	}
	if err != nil {
		return fmt.Errorf("begin the recording of call %s: %w", callID, err)
	}
	return nil
}

// Talk is the conversation of an ended call.
type Talk struct {
	CallID      uuid.UUID    `db:"call_id"`
	WorkspaceID uuid.UUID    `db:"workspace_id"`
	AnsweredAt  time.Time    `db:"answered_at"`
	EndedAt     time.Time    `db:"ended_at"`
	Turns       []agent.Turn `db:"turns"`
}

const recordedWorkspaces = `
SELECT now(), coalesce(array_agg(workspace_id), '{}') FROM workspaces WHERE recordings AND (test OR NOT @test_only)`

// RecordedWorkspaces returns the workspaces that record their calls and the time of the database.
// If testOnly is true, it returns only test workspaces.
func (s *Recordings) RecordedWorkspaces(
	ctx context.Context, testOnly bool,
) (workspaces []uuid.UUID, now time.Time, err error) {
	args := pg.Args{"test_only": testOnly}
	if err := s.pool.QueryRow(ctx, recordedWorkspaces, args).Scan(&now, &workspaces); err != nil {
		return nil, now, fmt.Errorf("list the workspaces that record their calls: %w", err)
	}
	return workspaces, now, nil
}

// unrecordedTalks reads the index calls_spoken.
const unrecordedTalks = `
SELECT c.call_id, c.workspace_id, c.answered_at, c.ended_at, c.turns FROM calls c
WHERE c.ended_at > now() - @age::interval AND c.ended_at IS NOT NULL AND json_array_length(c.turns) > 0
	AND c.answered_at IS NOT NULL AND NOT c.erased AND (c.test OR NOT @test_only)
	AND c.workspace_id = ANY (@workspaces::uuid[])
	AND NOT EXISTS (SELECT FROM recordings r WHERE r.call_id = c.call_id)
ORDER BY c.ended_at DESC LIMIT @limit`

// UnrecordedTalks returns conversations of calls that ended within the given time and have no
// recording, the newest first. If testOnly is true, it returns only calls of test workspaces.
func (s *Recordings) UnrecordedTalks(
	ctx context.Context, workspaces []uuid.UUID, testOnly bool, age time.Duration, limit int,
) ([]Talk, error) {
	args := pg.Args{"workspaces": workspaces, "test_only": testOnly, "age": age, "limit": limit}
	found, err := pg.Many[Talk](ctx, s.pool, unrecordedTalks, args)
	if err != nil {
		return nil, fmt.Errorf("list calls without a recording: %w", err)
	}
	return found, nil
}

const spoolHeartbeat = `
INSERT INTO recording_spools (spool) VALUES (@spool) ON CONFLICT (spool) DO UPDATE SET seen_at = now()`

// Heartbeat stores that a process is using the spool.
func (s *Recordings) Heartbeat(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, spoolHeartbeat, pg.Args{"spool": s.spool}); err != nil {
		return fmt.Errorf("store spool heartbeat: %w", err)
	}
	return nil
}

const unfinishedRecordings = `
SELECT call_id FROM recordings WHERE spool = @spool AND state = 'recording' ORDER BY call_id`

// Unfinished returns the calls whose recording files in the spool are not closed.
func (s *Recordings) Unfinished(ctx context.Context) ([]uuid.UUID, error) {
	return s.queryCallIDs(ctx, unfinishedRecordings, pg.Args{"spool": s.spool})
}

const knownRecordings = `SELECT call_id FROM recordings WHERE spool = @spool AND call_id = ANY (@calls::uuid[])`

// Known returns those of the given calls that have a recording in this spool. The caller can delete
// the files of the other calls.
func (s *Recordings) Known(ctx context.Context, calls []uuid.UUID) ([]uuid.UUID, error) {
	return s.queryCallIDs(ctx, knownRecordings, pg.Args{"spool": s.spool, "calls": calls})
}

func (s *Recordings) queryCallIDs(ctx context.Context, sql string, args pg.Args) ([]uuid.UUID, error) {
	ids, err := pg.Values[uuid.UUID](ctx, s.pool, sql, args)
	if err != nil {
		return nil, fmt.Errorf("list recordings of the spool: %w", err)
	}
	return ids, nil
}

const closeRecording = `
UPDATE recordings SET ended_at = now(), try_at = now(), tries = 0,
	state = CASE WHEN @drop::boolean OR erasures <> '{}' THEN 'leaving' ELSE 'recorded' END
WHERE call_id = @call_id AND state = 'recording'`

// Close stores that the file of a recording is complete and waits for its upload. If dropped is
// true, or if the person was erased in the meantime, Close marks the recording for deletion
// instead. A repeated call has no further effect.
func (s *Recordings) Close(ctx context.Context, callID uuid.UUID, dropped bool) error {
	if _, err := s.pool.Exec(ctx, closeRecording, pg.Args{"call_id": callID, "drop": dropped}); err != nil {
		return fmt.Errorf("close the recording of call %s: %w", callID, err)
	}
	return nil
}

const markLost = `
UPDATE recordings SET state = 'lost', ended_at = coalesce(ended_at, now())
WHERE call_id = @call_id AND state IN ('recording', 'recorded') AND erasures = '{}'`

// MarkLost stores that the file of a recording does not exist, and returns true. If an erasure
// waits for the recording, MarkLost marks it for deletion instead and returns false.
func (s *Recordings) MarkLost(ctx context.Context, callID uuid.UUID) (lost bool, err error) {
	did, err := s.pool.Exec(ctx, markLost, pg.Args{"call_id": callID})
	if err != nil {
		return false, fmt.Errorf("mark recording of call %s as lost: %w", callID, err)
	}
	if did.RowsAffected() == 1 {
		return true, nil
	}
	return false, s.Close(ctx, callID, true)
}

// loseUnreachable marks recordings as lost if their spool had no heartbeat for @after. If an
// erasure waits for a recording, the recording is marked for deletion.
const loseUnreachable = `
UPDATE recordings r SET state = CASE WHEN erasures = '{}' THEN 'lost' ELSE 'leaving' END, spool = @spool, try_at = now(), ended_at = coalesce(ended_at, now())
WHERE r.call_id = ANY (ARRAY(
	SELECT o.call_id FROM recordings o JOIN recording_spools s ON s.spool = o.spool
	WHERE (o.state IN ('recording', 'recorded') OR o.state = 'leaving' AND NOT o.in_storage)
		AND o.spool <> @spool AND s.seen_at < now() - @after::interval
	LIMIT 500 FOR UPDATE OF o SKIP LOCKED))
RETURNING call_id`

// MarkUnreachableLost marks recordings as lost if their spool had no heartbeat for the duration
// maxSilence. It returns the calls of these recordings.
func (s *Recordings) MarkUnreachableLost(ctx context.Context, maxSilence time.Duration) ([]uuid.UUID, error) {
	return s.queryCallIDs(ctx, loseUnreachable, pg.Args{"spool": s.spool, "after": maxSilence})
}

// Due is a recording that must be uploaded or deleted.
type Due struct {
	CallID    uuid.UUID   `db:"call_id"`
	Workspace uuid.UUID   `db:"workspace_id"`
	Key       string      `db:"key"`
	InStorage bool        `db:"in_storage"`
	Erasures  []uuid.UUID `db:"erasures"`
}

const retryLater = ` tries = r.tries + 1,
	try_at = now() + least(interval '5 minutes', interval '1 second' * power(2, least(r.tries, 9)))`

// dueUploads sets in_storage before the upload. If the process dies during the upload, in_storage
// shows that the object can exist, and another process deletes it.
const dueUploads = `
UPDATE recordings r SET in_storage = true,` + retryLater + `
WHERE r.call_id = ANY (ARRAY(
	SELECT d.call_id FROM recordings d JOIN calls c ON c.call_id = d.call_id
	WHERE d.state = 'recorded' AND d.spool = @spool AND d.try_at <= now() AND c.ended_at IS NOT NULL
	ORDER BY d.try_at LIMIT @limit FOR UPDATE OF d SKIP LOCKED))
RETURNING r.call_id, r.workspace_id, r.key, r.in_storage, r.erasures`

// DueUploads claims up to limit files of the spool that must be uploaded. If MarkStored is not
// called, a file is due again after a delay that grows with each claim.
func (s *Recordings) DueUploads(ctx context.Context, limit int) ([]Due, error) {
	return s.claimDue(ctx, dueUploads, pg.Args{"spool": s.spool, "limit": limit})
}

const dueDeletions = `
UPDATE recordings r SET` + retryLater + `
WHERE r.call_id = ANY (ARRAY(
	SELECT call_id FROM recordings WHERE state = 'leaving' AND try_at <= now() AND (in_storage OR spool = @spool)
	ORDER BY try_at LIMIT @limit FOR UPDATE SKIP LOCKED))
RETURNING r.call_id, r.workspace_id, r.key, r.in_storage, r.erasures`

// DueDeletions claims up to limit recordings that must be deleted. If Delete is not called, a
// recording is due again after a delay that grows with each claim.
func (s *Recordings) DueDeletions(ctx context.Context, limit int) ([]Due, error) {
	return s.claimDue(ctx, dueDeletions, pg.Args{"spool": s.spool, "limit": limit})
}

func (s *Recordings) claimDue(ctx context.Context, sql string, args pg.Args) ([]Due, error) {
	due, err := pg.Many[Due](ctx, s.pool, sql, args)
	if err != nil {
		return nil, fmt.Errorf("claim recordings: %w", err)
	}
	return due, nil
}

const markStored = `UPDATE recordings SET state = 'stored', tries = 0 WHERE call_id = @call_id AND state = 'recorded'`

// MarkStored stores that the object is in storage. It returns false if the recording was marked for
// deletion in the meantime. The object must then be deleted.
func (s *Recordings) MarkStored(ctx context.Context, callID uuid.UUID) (bool, error) {
	did, err := s.pool.Exec(ctx, markStored, pg.Args{"call_id": callID})
	if err != nil {
		return false, fmt.Errorf("mark recording of call %s as stored: %w", callID, err)
	}
	return did.RowsAffected() == 1, nil
}

const deleteRecording = `
DELETE FROM recordings WHERE call_id = @call_id AND state = 'leaving' RETURNING workspace_id, erasures`

// Delete deletes the row of a recording. It is called after the file and the object were deleted.
// It reports the deletion to the erasures that waited for the recording.
func (s *Recordings) Delete(ctx context.Context, callID uuid.UUID) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		var workspaceID uuid.UUID
		var erasures []uuid.UUID
		err := tx.QueryRow(ctx, deleteRecording, pg.Args{"call_id": callID}).Scan(&workspaceID, &erasures)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("delete recording of call %s: %w", callID, err)
		}
		for _, id := range erasures {
			done := &eventv1.ErasureReport{
				ErasureId: id.String(), WorkspaceId: workspaceID.String(), OccurredAt: timestamppb.Now(), Service: "dialer",
				Event: &eventv1.ErasureReport_StepDone{StepDone: &eventv1.StepDone{Ref: callID.String()}},
			}
			if err := outbox.Put(ctx, tx, outbox.Event{Topic: kafka.ErasureReports, Key: id.String(), WorkspaceID: workspaceID, Message: done}); err != nil {
				return err
			}
		}
		return nil
	})
}

const expireRecordings = `
UPDATE recordings SET state = 'leaving', try_at = now(), tries = 0
WHERE call_id = ANY (ARRAY(
	SELECT r.call_id FROM recordings r LEFT JOIN workspaces w ON w.workspace_id = r.workspace_id
	WHERE r.state IN ('stored', 'lost')
		AND r.ended_at < @now::timestamptz - coalesce(make_interval(days => w.keep_recordings_days), @keep::interval)
	ORDER BY r.ended_at LIMIT @limit FOR UPDATE OF r SKIP LOCKED))`

// Expire marks up to limit recordings for deletion. It selects recordings whose retention period
// has ended. The period is a setting of the workspace. If the workspace has none, defaultPeriod
// applies. Expire returns how many recordings it marked.
func (s *Recordings) Expire(ctx context.Context, now time.Time, defaultPeriod time.Duration, limit int) (int64, error) {
	did, err := s.pool.Exec(ctx, expireRecordings, pg.Args{"now": now, "keep": defaultPeriod, "limit": limit})
	if err != nil {
		return 0, fmt.Errorf("expire recordings: %w", err)
	}
	return did.RowsAffected(), nil
}
