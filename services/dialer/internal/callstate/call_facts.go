package callstate

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent"
)

// Names of a call's events. The id of an event is derived from its name.
const (
	dialing  = "dialing"
	ringing  = "ringing"
	answered = "answered"
	ended    = "ended"
	analysed = "analysed"
	recorded = "recorded"
	erased   = "erased"
)

func (c *Call) publish(name string, at time.Time) {
	f := c.newFact(name, at)
	switch name {
	case dialing:
		f.Event.Event = &eventv1.DialEvent_Dialing{Dialing: &eventv1.Dialing{}}
	case ringing:
		f.Event.Event = &eventv1.DialEvent_Ringing{Ringing: &eventv1.Ringing{}}
	case answered:
		f.Event.Event = &eventv1.DialEvent_Answered{Answered: &eventv1.Answered{}}
	case ended:
		f.Event.Event = &eventv1.DialEvent_Ended{Ended: &eventv1.Ended{Outcome: c.endedOutcome()}}
	case recorded:
		f.Event.Event = &eventv1.DialEvent_Recorded{Recorded: &eventv1.Recorded{}}
	}
	c.facts = append(c.facts, f)
}

func (c *Call) publishErased(erasure uuid.UUID, at time.Time) {
	f := c.newFact(erased, at)
	f.Event.Event = &eventv1.DialEvent_Erased{Erased: &eventv1.CallErased{ErasureId: erasure.String()}}
	c.facts = append(c.facts, f)
}

func (c *Call) publishAnalysis(judged agent.Judgement, at time.Time) {
	c.setOutcome(judged.Outcome, at)
	analysis := &eventv1.Analysed{Outcome: judged.Outcome}
	if judged.Summary != nil {
		analysis.SummaryJson, _ = json.Marshal(judged.Summary) // cannot fail: strings and numbers only
	}
	analysis.TranscriptJson, _ = agent.Transcript(c.Turns)
	f := c.newFact(analysed, at)
	f.Event.Event = &eventv1.DialEvent_Analysed{Analysed: analysis}
	c.facts = append(c.facts, f)
}

func (c *Call) newFact(name string, at time.Time) Fact {
	c.Version++
	requestID, key := uuid.Nil, c.CallID
	if c.CallRequestID != nil {
		requestID, key = *c.CallRequestID, *c.CallRequestID
	}
	// The id is derived from the call. A request that is tried on two trunks has two calls with equal
	// versions, and their events must have different ids.
	f := New(c.CallID, requestID, c.WorkspaceID, name, c.Version, at)
	f.Key = key.String()
	f.Event.Call = c.event()
	return f
}

// EndedAgain returns the end event of a call again, for a consumer that has lost the first one. The
// id of the repeated event stays the same until the call changes.
func (c *Call) EndedAgain() Fact {
	c.Version-- // newFact increases the version, which must stay the same here
	f := c.newFact("ended_again", *c.EndedAt)
	f.Event.Event = &eventv1.DialEvent_Ended{Ended: &eventv1.Ended{Outcome: c.endedOutcome()}}
	return f
}

// FromEvent returns a live call from the state that the service `calls` has received. requestID is
// uuid.Nil for an inbound call. It returns an error if the call is invalid.
func FromEvent(reported *eventv1.Call, requestID, workspaceID uuid.UUID) (*Call, error) {
	c := &Call{
		WorkspaceID: workspaceID, Direction: Direction(reported.GetDirection()), From: reported.GetFrom(),
		To: reported.GetToE164(), Status: Status(reported.GetStatus()), QueuedAt: timeOrNil(reported.GetQueuedAt()),
		DialedAt: timeOrNil(reported.GetDialedAt()), RingingAt: timeOrNil(reported.GetRingingAt()),
		AnsweredAt: timeOrNil(reported.GetAnsweredAt()), Version: reported.GetVersion(),
		Priced: reported.GetPriced(),
	}
	var err error
	if c.CallID, err = uuid.Parse(reported.GetCallId()); err != nil {
		return nil, fmt.Errorf("call_id: %w", err)
	}
	if c.AgentID, err = uuid.Parse(reported.GetAgentId()); err != nil {
		return nil, fmt.Errorf("agent_id: %w", err)
	}
	if id := reported.GetContactId(); id != "" {
		contact, err := uuid.Parse(id)
		if err != nil {
			return nil, fmt.Errorf("contact_id: %w", err)
		}
		c.ContactID = &contact
	}
	if requestID != uuid.Nil {
		c.CallRequestID = &requestID
	}
	if inbound := c.Direction == Inbound; !inbound && c.Direction != Outbound || inbound != (requestID == uuid.Nil) {
		return nil, fmt.Errorf("call %s has the direction %q and the request %s", c.CallID, c.Direction, requestID)
	}
	switch c.Status {
	case Initiated, Ringing, InProgress:
		return c, nil
	}
	return nil, fmt.Errorf("call %s has the status %q", c.CallID, c.Status)
}

func timeOrNil(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}

// NewCallUnknown returns the event `call_unknown`: the dialer has no inbound call with this id.
func NewCallUnknown(callID, workspaceID uuid.UUID) Fact {
	f := New(callID, uuid.Nil, workspaceID, "call_unknown", 0, time.Now())
	f.Event.Event = &eventv1.DialEvent_CallUnknown{CallUnknown: &eventv1.CallUnknown{CallId: callID.String()}}
	return f
}

func (c *Call) event() *eventv1.Call {
	out := &eventv1.Call{
		CallId: c.CallID.String(), Direction: string(c.Direction), From: c.From, ToE164: c.To, AgentId: c.AgentID.String(),
		Status: string(c.Status), HangupCause: string(c.HangupCause), Disposition: c.Disposition,
		QueuedAt: newTimestamp(c.QueuedAt), DialedAt: newTimestamp(c.DialedAt), RingingAt: newTimestamp(c.RingingAt),
		AnsweredAt: newTimestamp(c.AnsweredAt), EndedAt: newTimestamp(c.EndedAt),
		ErrorCode: c.ErrorCode, ErrorDetail: c.ErrorDetail, Version: c.Version, Priced: c.Priced,
	}
	if !c.Erased {
		out.RecordingKey = c.RecordingKey
	}
	if d := c.Disclosure; d != nil {
		out.Disclosure = &eventv1.Disclosure{
			Text: d.Text, StartedAt: newTimestamp(d.StartedAt),
			FinishedAt: newTimestamp(d.FinishedAt), CutAt: newTimestamp(d.CutAt),
		}
	}
	if c.ContactID != nil {
		out.ContactId = c.ContactID.String()
	}
	ringEnd := c.EndedAt
	if c.AnsweredAt != nil {
		ringEnd = c.AnsweredAt
	}
	out.RingSeconds = secondsBetween(c.RingingAt, ringEnd)
	out.TalkSeconds = secondsBetween(c.AnsweredAt, c.EndedAt)
	out.TotalSeconds = secondsBetween(c.DialedAt, c.EndedAt)
	if (c.Direction == Outbound || c.Priced) && c.Status == Completed && out.TalkSeconds != nil {
		out.BillableSeconds = *out.TalkSeconds
	}
	return out
}

// secondsBetween returns the number of seconds from `from` to `to`, rounded up.
func secondsBetween(from, to *time.Time) *int32 {
	if from == nil || to == nil {
		return nil
	}
	rounded := int32((to.Sub(*from) + time.Second - 1) / time.Second)
	return &rounded
}

func newTimestamp(at *time.Time) *timestamppb.Timestamp {
	if at == nil {
		return nil
	}
	return timestamppb.New(*at)
}
