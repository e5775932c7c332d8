package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/callstate"
)

const requestColumns = `id, workspace_id, status, call_id, to_e164, agent_id, contact_id, variables, external_ref, scheduled_for,
    schedule_if_outside_hours, max_call_seconds, queued_at, error_code, error_detail, dialed_at, completed_at, updated_at,
    charge_settled, credits_micro, traceparent, erasures, erased_at, dial_attempt, by_person`

const requestByID = `SELECT ` + requestColumns + ` FROM call_requests WHERE workspace_id = @workspace_id AND id = @id`

// Request reads one call request of the workspace. It returns pg.ErrNotFound if the request does
// not exist.
func (s *Store) Request(ctx context.Context, workspaceID, id uuid.UUID) (callstate.Request, error) {
	req, err := pg.One[callstate.Request](ctx, s.pool, requestByID, pgx.NamedArgs{"workspace_id": workspaceID, "id": id})
	if err != nil {
		return callstate.Request{}, fmt.Errorf("read call request %s: %w", id, err)
	}
	return req, nil
}

// listedRequestColumns lists the columns that the API shows. All other fields of a listed
// callstate.Request are zero.
const listedRequestColumns = `id, workspace_id, status, call_id, to_e164, agent_id, external_ref, scheduled_for,
    error_code, error_detail, dialed_at, completed_at, updated_at`

// requestsByStatus selects the newest requests of each status. An outer SELECT merges the results.
// Lists with and without a status filter use the same index, so a POST has to update only one
// index.
const requestsByStatus = `
SELECT ` + listedRequestColumns + ` FROM unnest(@statuses::text[]) AS one (one_status) CROSS JOIN LATERAL (
    SELECT ` + listedRequestColumns + ` FROM call_requests
    WHERE workspace_id = @workspace_id AND status = one_status` + createdWithin

const requestExists = `SELECT EXISTS (SELECT FROM call_requests WHERE workspace_id = @workspace_id AND id = @after)`

// RequestFilter filters a list of call requests. Its zero value matches all requests. From and
// Until have the same meaning as in CallFilter.
type RequestFilter struct {
	Status      string
	To          phone.Number
	ExternalRef *string
	From        *uuid.UUID
	Until       *uuid.UUID
}

// Requests lists call requests, newest first. It returns one row more than the page has, so that
// the caller can compute has_more.
func (s *Store) Requests(ctx context.Context, workspaceID uuid.UUID, p page.Request, f RequestFilter) ([]callstate.Request, error) {
	args := pageArgs(workspaceID, p)
	if err := s.knownCursor(ctx, requestExists, p, args); err != nil {
		return nil, err
	}
	args["statuses"], args["to"], args["external_ref"] = callstate.RequestStatuses(), f.To, f.ExternalRef
	if f.Status != "" {
		args["statuses"] = []string{f.Status}
	}
	addCreated(args, p, f.From, f.Until)
	sql, given := requestsByStatus, []any{args}
	if f.To != "" {
		sql += toNumber
	}
	if f.ExternalRef != nil {
		sql += ofExternalRef
	}
	// the best index depends on the values, so the statement is planned again
	if f.To != "" && f.ExternalRef != nil {
		given = []any{pgx.QueryExecModeCacheDescribe, args}
	}
	rows, err := queryListed[callstate.Request](ctx, s.pool, sql+newestFirst+`) AS r`+newestFirst, given...)
	if err != nil {
		return nil, fmt.Errorf("list call requests: %w", err)
	}
	return rows, nil
}

const cancelRequest = `
UPDATE call_requests SET status = 'canceled', completed_at = now(), updated_at = now(), cancel_answered = true
WHERE workspace_id = @workspace_id AND id = @id AND status = 'queued'
RETURNING ` + requestColumns

// Cancel cancels a request that the dialer has withdrawn, and writes the event for call-requests.v1
// and the public event to the outbox. It returns pg.ErrNotFound if the request is not queued.
func (s *Store) Cancel(ctx context.Context, workspaceID, id uuid.UUID, at time.Time) (callstate.Request, error) {
	var req callstate.Request
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if req, err = pg.One[callstate.Request](ctx, tx, cancelRequest, pgx.NamedArgs{"workspace_id": workspaceID,
			"id": id}); err != nil {
			return err
		}
		event, err := endEvent(&req, *req.CompletedAt)
		if err != nil {
			return err
		}
		return outbox.Put(ctx, tx, requestEvent(&req, req.WithdrawnEvent(at)), event)
	})
	if err != nil {
		return callstate.Request{}, fmt.Errorf("cancel call request %s: %w", id, err)
	}
	return req, nil
}

const answerCancel = `
UPDATE call_requests SET cancel_answered = true
WHERE workspace_id = @workspace_id AND id = @id AND status = 'canceled' AND NOT cancel_answered
RETURNING ` + requestColumns

// AnswerCancel records that a cancel of this request was answered with HTTP 200, and returns the
// request. It returns pg.ErrNotFound if the request is not canceled, or if an earlier cancel was
// answered with 200.
func (s *Store) AnswerCancel(ctx context.Context, workspaceID, id uuid.UUID) (callstate.Request, error) {
	req, err := pg.One[callstate.Request](ctx, s.pool, answerCancel, pgx.NamedArgs{"workspace_id": workspaceID, "id": id})
	if err != nil {
		return callstate.Request{}, fmt.Errorf("answer the cancel of call request %s: %w", id, err)
	}
	return req, nil
}

const lockRequest = `SELECT ` + requestColumns + ` FROM call_requests WHERE id = @id FOR UPDATE`

const saveRequest = `
UPDATE call_requests SET status = @status, call_id = @call_id, scheduled_for = @scheduled_for, error_code = @error_code,
    error_detail = @error_detail, dialed_at = @dialed_at, completed_at = @completed_at, dial_attempt = @dial_attempt,
    updated_at = @updated_at
WHERE id = @id`

const saveCharge = `
UPDATE call_requests SET charge_settled = @charge_settled, credits_micro = @credits_micro
WHERE id = @id`

const claimOverdue = `
UPDATE call_requests SET republished_at = now()
WHERE id IN (
    SELECT id FROM call_requests
    WHERE status IN ('queued', 'dialing') AND scheduled_for > @from AND scheduled_for <= now() - make_interval(secs
	=> @after)
        AND (status = 'queued' OR dialed_at <= now() - make_interval(secs => @after + max_call_seconds))
        AND (republished_at IS NULL OR republished_at <= now() - make_interval(secs => @after))
    ORDER BY scheduled_for LIMIT @limit FOR UPDATE SKIP LOCKED)
RETURNING ` + requestColumns

// Republish publishes overdue requests again, each at most once per overdueTime. A request is
// overdue if it is queued long after its due time, or dialing for longer than a call can last.
//
// Republish reads requests that are due after dueAfter. It returns the number of published requests
// and the due time of the last one.
func (s *Store) Republish(
	ctx context.Context, overdueTime time.Duration, dueAfter time.Time, limit int, at time.Time,
	continueTrace func(context.Context, *callstate.Request) (context.Context, func()),
) (n int, last time.Time, err error) {
	var overdue []callstate.Request
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) (err error) {
		args := pgx.NamedArgs{"after": overdueTime.Seconds(), "from": dueAfter, "limit": limit}
		if overdue, err = pg.Many[callstate.Request](ctx, tx, claimOverdue, args); err != nil {
			return err
		}
		for i := range overdue {
			traced, end := continueTrace(ctx, &overdue[i])
			err = outbox.Put(traced, tx, requestEvent(&overdue[i], overdue[i].OverdueEvent(at)))
			end()
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, dueAfter, fmt.Errorf("republish call requests: %w", err)
	}
	for _, req := range overdue {
		if last = dueAfter; req.ScheduledFor.After(last) {
			last = req.ScheduledFor
		}
		dueAfter = last
	}
	return len(overdue), dueAfter, nil
}

func requestEvent(req *callstate.Request, event *eventv1.CallRequestEvent) outbox.Event {
	return outbox.Event{Topic: kafka.CallRequests, Key: req.ID.String(), WorkspaceID: req.WorkspaceID, Message: event}
}

// endEvent returns the public event of a request that ended without a call.
func endEvent(req *callstate.Request, at time.Time) (outbox.Event, error) {
	message, err := req.PublicEvent(at)
	if err != nil {
		return outbox.Event{}, err
	}
	return outbox.Event{
		ID: callstate.EventID(req.ID, req.EndEvent()), Topic: kafka.CallEvents, Key: req.ID.String(),
		WorkspaceID: req.WorkspaceID, Message: message,
	}, nil
}

func insertArgs(r callstate.Request) pgx.NamedArgs {
	return pgx.NamedArgs{
		"id": r.ID, "workspace_id": r.WorkspaceID, "status": r.Status, "to_e164": r.To, "agent_id": r.AgentID,
		"contact_id": r.ContactID, "variables": r.Variables, "external_ref": r.ExternalRef, "scheduled_for": r.ScheduledFor,
		"schedule_if_outside_hours": r.ScheduleIfOutsideHours, "max_call_seconds": r.MaxCallSeconds,
		"queued_at": r.QueuedAt, "traceparent": r.Traceparent, "erasures": r.Erasures,
		"by_person": r.ByPerson,
	}
}

func saveArgs(r *callstate.Request) pgx.NamedArgs {
	return pgx.NamedArgs{
		"id": r.ID, "status": r.Status, "call_id": r.CallID, "scheduled_for": r.ScheduledFor, "error_code": r.ErrorCode,
		"error_detail": r.ErrorDetail, "dialed_at": r.DialedAt, "completed_at": r.CompletedAt,
		"dial_attempt": r.DialAttempt, "updated_at": r.UpdatedAt,
	}
}
