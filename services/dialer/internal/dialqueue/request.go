package dialqueue

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/callstate"
)

// State is the state of a request in the dial queue.
type State string

// Queued and Dialing are open states. The other states are final.
const (
	Queued    State = "queued"
	Dialing   State = "dialing"
	Ended     State = "ended"
	Withdrawn State = "withdrawn"
	Blocked   State = "blocked"
	Failed    State = "failed"
)

// Request is a call request in the dial queue.
type Request struct {
	CallRequestID          uuid.UUID       `db:"call_request_id"`
	WorkspaceID            uuid.UUID       `db:"workspace_id"`
	To                     phone.Number    `db:"to_e164"`
	AgentID                uuid.UUID       `db:"agent_id"`
	ContactID              *uuid.UUID      `db:"contact_id"`
	Variables              json.RawMessage `db:"variables"`
	ScheduleIfOutsideHours bool            `db:"schedule_if_outside_hours"`
	MaxCallSeconds         int32           `db:"max_call_seconds"`
	QueuedAt               *time.Time      `db:"queued_at"`
	DueAt                  time.Time       `db:"due_at"`
	Looks                  int32           `db:"looks"`
	// ByPerson is true if a person placed the request with a session of the console. The features of
	// the plan do not apply to it.
	ByPerson    bool   `db:"by_person"`
	Traceparent string `db:"traceparent"`
	// ClaimedUntil is the time at which the claim ends. It identifies the claim, because each claim
	// of a request ends at a different time.
	ClaimedUntil time.Time `db:"claimed_until"`
	// TimeZone is the person's time zone, as the dial-time check returned it. It is empty if the time
	// zone is not known.
	TimeZone string `db:"-"`
	// HeldBack is true if the request waited because its workspace had reached its own limits.
	HeldBack bool `db:"-"`
	// TookToken is true if the claim took a token of the rate limits for the request.
	TookToken bool `db:"-"`
}

// EndUnknown returns the refusal for a request that ended without a call for an unknown reason.
func EndUnknown() Refusal {
	return Refusal{
		Code:   "dial_state_unknown",
		Detail: "The request ended without a call. The reason is no longer known.",
	}
}

// Found is the state of a request or call when its overdue event arrived.
type Found string

// Waiting means that the request is in the queue, that the request or the call is in progress, or
// that it ended less than MaxEndDelay ago. Lost means that the request had never arrived, or that
// the database has lost the call. Over means that the request or the call had ended, but the
// service `calls` did not receive the end.
const (
	Waiting Found = "waiting"
	Lost    Found = "lost"
	Over    Found = "over"
)

// Founds returns all values of Found.
func Founds() []Found { return []Found{Waiting, Lost, Over} }

// MaxEndDelay is the longest time that the event of a request's end takes to reach the service
// `calls`.
const MaxEndDelay = time.Minute

// Refusal is the reason why a request ends without a call. Code and Detail become the error of the
// call request.
type Refusal struct {
	Code   string
	Detail string
}

// Codes of refusals by the dialer.
const (
	CodeRecipientDND    = "recipient_dnd"
	CodeWithdrawn       = "consent_withdrawn"
	CodeOutsideHours    = "outside_calling_hours"
	CodeAPINotEnabled   = "api_not_enabled"
	CodeInvalidAgent    = "invalid_agent"
	CodeDestination     = "destination_not_allowed"
	CodeQueueExpired    = "queue_expired"
	CodeCapacityTimeout = "capacity_timeout"
	CodeInternal        = "internal_error"
	CodeUnavailable     = "provider_unavailable"
	CodeDialUnknown     = "dial_state_unknown"
)

// maxLooks is the highest number of times that a request is put back because its agent is not known
// yet. The delays add up to about a minute, because records of agents.v1 can be delayed by a minute
// after a replica has died.
const maxLooks = 15

// Check checks a request before the dial. If the request may be dialed, refused is nil and known is
// true. If the dialer has not received the workspace or the agent yet, known is false, and the
// caller must put the request back.
func (r Request) Check(workspace *Workspace, agent *Agent, pendingOptOut bool) (refused *Refusal, known bool) {
	if workspace == nil {
		return nil, false
	}
	if !workspace.MayDial(r.ByPerson) {
		return &Refusal{
			CodeAPINotEnabled,
			"The workspace is suspended or its plan has no API access any more; ask the operator.",
		}, true
	}
	if agent == nil && r.Looks < maxLooks {
		return nil, false
	}
	if agent == nil || agent.Deleted || agent.WorkspaceID != r.WorkspaceID {
		return &Refusal{CodeInvalidAgent, "The agent was deleted; ask for the call with another agent."}, true
	}
	if kind := r.To.Forbidden(); kind != "" {
		return &Refusal{
			CodeDestination,
			"Numbers of this kind (" + kind + ") are never dialled; use another number.",
		}, true
	}
	if len(workspace.Destinations) > 0 && !r.To.HasPrefix(workspace.Destinations) {
		return &Refusal{
			CodeDestination,
			"The workspace does not call this destination; ask the operator to allow its prefix.",
		}, true
	}
	if pendingOptOut {
		return &Refusal{
			CodeRecipientDND,
			"The person asked not to be called again; ask for no further calls to this number.",
		}, true
	}
	return nil, true
}

// Expired returns the refusal of a request that waited longer than the limit of the queue.
// noCapacity is true if the request waited for capacity.
func Expired(noCapacity bool) Refusal {
	if noCapacity {
		return Refusal{
			CodeCapacityTimeout,
			"There was no free line for this call for as long as it may wait; raise the limits or spread the calls.",
		}
	}
	return Refusal{CodeQueueExpired, "The call could not be dialled for as long as it may wait; ask for it again."}
}

// NoNumber returns the refusal of a request if no trunk has a caller number for its agent.
func NoNumber() Refusal {
	return Refusal{CodeInvalidAgent, "The agent has no number to call from. Set the agent's from_number, or ask the " +
		"operator to give it a number (ringfence numbers add NUMBER AGENT) or to set caller_ids of the trunk. " +
		"Then ask for the call again."}
}

// NoTestCarrier returns the refusal of a request of a test workspace if the dialer has no simulated
// carrier.
func NoTestCarrier() Refusal {
	return Refusal{CodeUnavailable, "The service has no simulated carrier for test workspaces. Ask the operator to set " +
		"SIM_URL of the dialer, then ask for the call again."}
}

// Erased returns the refusal of a request whose person was erased while the request waited in the
// queue.
func Erased() Refusal {
	return Refusal{
		CodeWithdrawn,
		"The person's data was erased, and their consent with it; ask for no further calls unless they agree anew.",
	}
}

// NewBlocked returns the event of a request that ended because a check refused it. Nothing was sent
// to the carrier.
func NewBlocked(id, workspaceID uuid.UUID, why Refusal, at time.Time) callstate.Fact {
	f := callstate.New(id, id, workspaceID, "blocked", 0, at)
	f.Event.Event = &eventv1.DialEvent_Blocked{Blocked: &eventv1.Blocked{ErrorCode: why.Code, ErrorDetail: why.Detail}}
	return f
}

// NewFailed returns the event of a request that ended without a call.
func NewFailed(id, workspaceID uuid.UUID, why Refusal, at time.Time) callstate.Fact {
	f := callstate.New(id, id, workspaceID, "failed", 0, at)
	f.Event.Event = &eventv1.DialEvent_Failed{Failed: &eventv1.Failed{ErrorCode: why.Code, ErrorDetail: why.Detail}}
	return f
}

// NewWithdrawn returns the event of a request that was withdrawn from the queue.
func NewWithdrawn(id, workspaceID uuid.UUID, at time.Time) callstate.Fact {
	f := callstate.New(id, id, workspaceID, "withdrawn", 0, at)
	f.Event.Event = &eventv1.DialEvent_Withdrawn{Withdrawn: &eventv1.Withdrawn{}}
	return f
}

// NewRescheduled returns the event of a request that waits for its next calling window. The window
// begins at windowStart.
func NewRescheduled(id, workspaceID uuid.UUID, windowStart, at time.Time) callstate.Fact {
	f := callstate.New(id, id, workspaceID, "rescheduled", windowStart.UnixMicro(), at)
	f.Event.Event = &eventv1.DialEvent_Rescheduled{
		Rescheduled: &eventv1.Rescheduled{ScheduledFor: timestamppb.New(windowStart)},
	}
	return f
}

// NewDialing returns the event that a fence was committed. attempt is the number of this fence
// among the fences of the request, starting at 1.
func NewDialing(id, workspaceID uuid.UUID, attempt int32, at time.Time) callstate.Fact {
	f := callstate.New(id, id, workspaceID, "dialing", int64(attempt)-1, at)
	f.Event.Event = &eventv1.DialEvent_Dialing{Dialing: &eventv1.Dialing{Attempt: attempt}}
	return f
}

// NewReleased returns the event of a request that was dialed and is queued again, because no phone
// rang. attempt is the number of its last fence.
func NewReleased(id, workspaceID uuid.UUID, attempt int32, dueAt, at time.Time) callstate.Fact {
	f := callstate.New(id, id, workspaceID, "released", int64(attempt), at)
	f.Event.Event = &eventv1.DialEvent_Rescheduled{Rescheduled: &eventv1.Rescheduled{
		ScheduledFor: timestamppb.New(dueAt), ReleasedAttempt: attempt,
	}}
	return f
}
