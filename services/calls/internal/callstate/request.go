package callstate

import (
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/money"
)

// RequestStatus is the state of a call request. See
// docs/reference/api/call-requests.md#call-request-states.
type RequestStatus string

const (
	RequestQueued    RequestStatus = "queued"
	RequestDialing   RequestStatus = "dialing"
	RequestCompleted RequestStatus = "completed"
	RequestBlocked   RequestStatus = "blocked"
	RequestFailed    RequestStatus = "failed"
	RequestCanceled  RequestStatus = "canceled"
)

// RequestStatuses returns all states, for the status filter of lists.
func RequestStatuses() []string {
	return []string{
		string(RequestQueued), string(RequestDialing), string(RequestCompleted), string(RequestBlocked),
		string(RequestFailed), string(RequestCanceled),
	}
}

// Final reports whether the request has ended.
func (s RequestStatus) Final() bool { return s != RequestQueued && s != RequestDialing }

// Request is the order to make one call.
type Request struct {
	ID                     uuid.UUID     `db:"id"`
	WorkspaceID            uuid.UUID     `db:"workspace_id"`
	Status                 RequestStatus `db:"status"`
	CallID                 *uuid.UUID    `db:"call_id"`
	To                     string        `db:"to_e164"`
	AgentID                uuid.UUID     `db:"agent_id"`
	ContactID              uuid.UUID     `db:"contact_id"`
	Variables              []byte        `db:"variables"`
	ExternalRef            *string       `db:"external_ref"`
	ScheduledFor           time.Time     `db:"scheduled_for"`
	ScheduleIfOutsideHours bool          `db:"schedule_if_outside_hours"`
	// MaxCallSeconds is the length of the call that the hold pays for. It never changes.
	MaxCallSeconds int32 `db:"max_call_seconds"`
	// QueuedAt is the time at which the request was accepted.
	QueuedAt    time.Time  `db:"queued_at"`
	ErrorCode   *string    `db:"error_code"`
	ErrorDetail *string    `db:"error_detail"`
	DialedAt    *time.Time `db:"dialed_at"`
	CompletedAt *time.Time `db:"completed_at"`
	UpdatedAt   time.Time  `db:"updated_at"`
	// ChargeSettled and Credits are the charge that billing-wallet reported. The request stores
	// them because the charge can arrive before the first event of the call.
	ChargeSettled bool         `db:"charge_settled"`
	Credits       *money.Micro `db:"credits_micro"`
	// Erasures is the erasure counter of the phone number when the pre-check allowed this request.
	// ErasedAt is the time of a later erasure, or nil.
	Erasures int64      `db:"erasures"`
	ErasedAt *time.Time `db:"erased_at"`
	// DialAttempt is the number of the newest dial attempt. It is set when an event of this attempt
	// arrives.
	DialAttempt int32 `db:"dial_attempt"`
	// ByPerson is true if a person placed the request with a session of the console. The features of
	// the workspace's plan do not apply to such a request.
	ByPerson bool `db:"by_person"`
	// Traceparent identifies the trace of the POST. Events that are published later continue this
	// trace.
	Traceparent string `db:"traceparent"`
}

// Ending is the reason why a request ended without a call or with a failed call.
type Ending struct {
	Code   string
	Detail string
}

// Dial records that the dialer committed the fence (the row that permits one dial) of this attempt.
// If attempt is 0, the number is unknown and DialAttempt does not change. A late event of a
// released attempt changes nothing.
func (r *Request) Dial(attempt int32) bool {
	if r.Status.Final() || attempt > 0 && attempt <= r.DialAttempt {
		return false
	}
	changed := r.Status == RequestQueued || attempt > r.DialAttempt
	r.Status, r.DialAttempt = RequestDialing, max(attempt, r.DialAttempt)
	return changed
}

// Release queues the request again after the dialer released the attempt. No phone rang, so the
// dialer may dial again. A late event of an older attempt changes nothing.
func (r *Request) Release(attempt int32) bool {
	if r.Status.Final() || r.CallID != nil || attempt < r.DialAttempt {
		return false
	}
	changed := r.Status == RequestDialing || attempt > r.DialAttempt
	r.Status, r.DialAttempt = RequestQueued, attempt
	return changed
}

// Move sets a later due time, because the calling window is closed. It never sets an earlier due
// time, so a late or repeated event changes nothing.
func (r *Request) Move(to time.Time) bool {
	if !to.After(r.ScheduledFor) {
		return false
	}
	r.ScheduledFor = to
	return true
}

// Block ends the request because a gate refused it at dial time.
func (r *Request) Block(why Ending, at time.Time) bool { return r.end(RequestBlocked, &why, at) }

// Fail ends the request with the status `failed`.
func (r *Request) Fail(why Ending, at time.Time) bool { return r.end(RequestFailed, &why, at) }

// Cancel ends a queued request that the dialer has withdrawn. It returns false in any other state.
func (r *Request) Cancel(at time.Time) bool {
	return r.Status == RequestQueued && r.end(RequestCanceled, nil, at)
}

// Follow updates the request from the status of its call. The statuses `completed`, `no_answer` and
// `busy` complete the request. After the statuses `failed` and `canceled`, the request fails with
// the dialer's error code. See docs/reference/api/call-requests.md#result-of-the-call-request.
func (r *Request) Follow(c *Call, why Ending, at time.Time) bool {
	if r.Status.Final() {
		return false
	}
	changed := r.Dial(0)
	if r.CallID == nil {
		r.CallID, changed = &c.ID, true
	}
	if r.DialedAt == nil && c.DialedAt != nil {
		r.DialedAt, changed = c.DialedAt, true
	}
	if c.EndedAt != nil {
		at = *c.EndedAt
	}
	switch c.Status {
	case Completed, NoAnswer, Busy:
		return r.end(RequestCompleted, nil, at)
	case Failed, Canceled:
		return r.Fail(why, at)
	default:
		return changed
	}
}

// Settle stores the charge of the request. Only the first charge is stored. amount is nil if the
// wallet hold was released.
func (r *Request) Settle(amount *money.Micro) bool {
	if r.ChargeSettled {
		return false
	}
	r.ChargeSettled, r.Credits = true, amount
	return true
}

func (r *Request) end(status RequestStatus, why *Ending, at time.Time) bool {
	if r.Status.Final() {
		return false
	}
	r.Status, r.CompletedAt = status, &at
	if why != nil {
		if why.Code == "" {
			why.Code = "internal_error" // the code for a failure without a known reason
		}
		r.ErrorCode, r.ErrorDetail = &why.Code, nonEmptyText(why.Detail)
	}
	return true
}
