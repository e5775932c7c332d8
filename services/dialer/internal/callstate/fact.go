package callstate

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent"
)

// Names of a call's facts.
const (
	dialing  = "dialing"
	ringing  = "ringing"
	answered = "answered"
	ended    = "ended"
	analysed = "analysed"
	recorded = "recorded"
	erased   = "erased"
)

// tell publishes the call as it is now.
func (c *Call) tell(name string, at time.Time) {
	f := c.newFact(name, at)
	switch name {
	case dialing:
		f.Event.Event = &eventv1.DialEvent_Dialing{Dialing: &eventv1.Dialing{}}
	case ringing:
		f.Event.Event = &eventv1.DialEvent_Ringing{Ringing: &eventv1.Ringing{}}
	case answered:
		f.Event.Event = &eventv1.DialEvent_Answered{Answered: &eventv1.Answered{}}
	case ended:
		f.Event.Event = &eventv1.DialEvent_Ended{Ended: &eventv1.Ended{Outcome: c.settledOutcome()}}
	case recorded:
		f.Event.Event = &eventv1.DialEvent_Recorded{Recorded: &eventv1.Recorded{}}
	}
	c.facts = append(c.facts, f)
}

// tellErased publishes that nothing is to be kept of what was said.
func (c *Call) tellErased(erasure uuid.UUID, at time.Time) {
	f := c.newFact(erased, at)
	f.Event.Event = &eventv1.DialEvent_Erased{Erased: &eventv1.CallErased{ErasureId: erasure.String()}}
	c.facts = append(c.facts, f)
}

// analyse stores the outcome and publishes it with the summary and the transcript.
func (c *Call) analyse(judged agent.Judgement, at time.Time) {
	c.settleOutcome(judged.Outcome, at)
	news := &eventv1.Analysed{Outcome: judged.Outcome}
	if judged.Summary != nil {
		news.SummaryJson, _ = json.Marshal(judged.Summary) // strings and numbers only: it cannot fail
	}
	news.TranscriptJson, _ = agent.Transcript(c.Turns)
	f := c.newFact(analysed, at)
	f.Event.Event = &eventv1.DialEvent_Analysed{Analysed: news}
	c.facts = append(c.facts, f)
}

func (c *Call) newFact(name string, at time.Time) Fact {
	c.Version++
	requestID, key := uuid.Nil, c.CallID
	if c.CallRequestID != nil {
		requestID, key = *c.CallRequestID, *c.CallRequestID
	}
	// The identity is the call's: a request that is tried on another trunk has two calls, and their versions begin alike.
	f := New(c.CallID, requestID, c.WorkspaceID, name, c.Version, at)
	f.Key = key.String()
	f.Event.Call = c.event()
	return f
}

// EndedAgain returns an ended event of a call that has ended, for a reader that has lost the first one. It
// does not change the call. Its id is always the same while the call does not change.
func (c *Call) EndedAgain() Fact {
	c.Version-- // newFact adds one
	f := c.newFact("ended_again", *c.EndedAt)
	f.Event.Event = &eventv1.DialEvent_Ended{Ended: &eventv1.Ended{Outcome: c.settledOutcome()}}
	return f
}

// event is the whole call so far, as dial-events.v1 tells it.
func (c *Call) event() *eventv1.Call {
	out := &eventv1.Call{
		CallId: c.CallID.String(), Direction: string(c.Direction), From: c.From, ToE164: c.To, AgentId: c.AgentID.String(),
		Status: string(c.Status), HangupCause: string(c.HangupCause), Disposition: c.Disposition,
		QueuedAt: stamp(c.QueuedAt), DialedAt: stamp(c.DialedAt), RingingAt: stamp(c.RingingAt),
		AnsweredAt: stamp(c.AnsweredAt), EndedAt: stamp(c.EndedAt),
		ErrorCode: c.ErrorCode, ErrorDetail: c.ErrorDetail, Version: c.Version,
	}
	if !c.Erased {
		out.RecordingKey = c.RecordingKey
	}
	if d := c.Disclosure; d != nil {
		out.Disclosure = &eventv1.Disclosure{
			Text: d.Text, StartedAt: stamp(d.StartedAt), FinishedAt: stamp(d.FinishedAt), CutAt: stamp(d.CutAt),
		}
	}
	if c.ContactID != nil {
		out.ContactId = c.ContactID.String()
	}
	ringEnd := c.EndedAt
	if c.AnsweredAt != nil {
		ringEnd = c.AnsweredAt
	}
	out.RingSeconds = seconds(c.RingingAt, ringEnd)
	out.TalkSeconds = seconds(c.AnsweredAt, c.EndedAt)
	out.TotalSeconds = seconds(c.DialedAt, c.EndedAt)
	if c.Direction == Outbound && c.Status == Completed && out.TalkSeconds != nil {
		out.BillableSeconds = *out.TalkSeconds
	}
	return out
}

// seconds is the time between, rounded up; nil when either instant never came.
func seconds(from, to *time.Time) *int32 {
	if from == nil || to == nil {
		return nil
	}
	rounded := int32((to.Sub(*from) + time.Second - 1) / time.Second)
	return &rounded
}

func stamp(at *time.Time) *timestamppb.Timestamp {
	if at == nil {
		return nil
	}
	return timestamppb.New(*at)
}
