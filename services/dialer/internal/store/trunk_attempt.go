package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/callstate"
)

// TrunkAttempt identifies an attempt, so that an operator can find it in the logs of the trunk. The
// attempt is stored together with its leg, and is kept longer than the leg.
type TrunkAttempt struct {
	ID uuid.UUID
	// Trunk is the name of the trunk.
	Trunk string
	// SIPCallID is the Call-ID header of the attempt's SIP messages.
	SIPCallID string
}

// Answer is the final response of a trunk to an INVITE.
type Answer struct {
	// Status is the SIP status code, or 0 if there was no final response. If Status is 0, Error is the
	// reason, or "" if the reason is unknown.
	Status int
	// Reason is the SIP reason phrase of the response.
	Reason string
	Error  string
}

// endAttempt ends the attempt of the leg that the statement before it changed. The stored status is
// 200 if the call was answered, even if another process ends the leg because the owner is dead.
const endAttempt = `
), attempt AS (
	UPDATE sip_attempts a SET ended_at = @at, cause = @cause, by_us = @by_us, sip_reason = @reason, error = @error,
		sip_status = coalesce(nullif(@status::integer, 0), CASE WHEN c.answered_at IS NOT NULL THEN 200 END)
	FROM changed c WHERE a.call_id = c.call_id AND a.ended_at IS NULL`

const deleteRefused = `
WITH forgotten AS (
	DELETE FROM sip_legs WHERE call_id = @call_id AND owner = @owner AND ended_at IS NULL
)
INSERT INTO sip_attempts AS a (attempt_id, call_id, trunk_id, trunk, sip_call_id, ended_at, sip_status, sip_reason,
	cause, by_us, error)
VALUES (@attempt_id, @call_id, @trunk_id, @trunk, @sip_call_id, @at, nullif(@status::integer, 0), @reason,
	@cause, @by_us, @error)
ON CONFLICT (attempt_id) DO UPDATE SET ended_at = excluded.ended_at, sip_status = excluded.sip_status,
	sip_reason = excluded.sip_reason, cause = excluded.cause, by_us = excluded.by_us, error = excluded.error
WHERE a.ended_at IS NULL`

// Refusal is the end of an attempt that the trunk refused, or whose INVITE was not sent. No event
// is published for it.
type Refusal struct {
	At     time.Time
	Cause  callstate.Cause
	ByUs   bool
	Answer Answer
}

// DeleteRefused deletes the leg of a refused attempt. It keeps the row of the attempt and stores
// the refusal in that row.
func (j *Legs) DeleteRefused(ctx context.Context, c Leg, r Refusal) error {
	_, err := j.pool.Exec(ctx, deleteRefused, pg.Args{
		"call_id": c.CallID, "owner": j.owner, "attempt_id": c.Attempt.ID, "trunk_id": c.TrunkID, "trunk": c.Attempt.Trunk,
		"sip_call_id": removeInvalid(c.Attempt.SIPCallID), "at": r.At, "status": r.Answer.Status,
		"reason": shortenText(r.Answer.Reason), "cause": string(r.Cause), "by_us": r.ByUs,
		"error": shortenText(r.Answer.Error),
	})
	if err != nil {
		return fmt.Errorf("delete refused leg of call %s: %w", c.CallID, err)
	}
	return nil
}

// maxReasonLength is the maximum number of stored characters of a text that a trunk sent.
const maxReasonLength = 500

func shortenText(text string) string {
	short := []rune(removeInvalid(text))
	return string(short[:min(len(short), maxReasonLength)])
}
