package callstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/openapi"
)

// FromDialer returns the call of a dial event. Outcome is set if the event type is `ended` and the
// conversation has an outcome. An error means that the event is invalid and can never be applied.
func FromDialer(ev *eventv1.DialEvent) (Call, error) {
	reported := ev.GetCall()
	c := Call{
		Direction: reported.GetDirection(), From: reported.GetFrom(), To: reported.GetToE164(),
		Status:      Status(reported.GetStatus()),
		HangupCause: nonEmptyText(reported.GetHangupCause()), Disposition: nonEmptyText(reported.GetDisposition()),
		QueuedAt: timeOrNil(reported.GetQueuedAt()), DialedAt: timeOrNil(reported.GetDialedAt()),
		RingingAt:  timeOrNil(reported.GetRingingAt()),
		AnsweredAt: timeOrNil(reported.GetAnsweredAt()), EndedAt: timeOrNil(reported.GetEndedAt()),
		RingSeconds: reported.RingSeconds, TalkSeconds: reported.TalkSeconds, TotalSeconds: reported.TotalSeconds,
		BillableSeconds: reported.GetBillableSeconds(), RecordingKey: nonEmptyText(reported.GetRecordingKey()),
		Version: reported.GetVersion(),
		Outcome: nonEmptyText(ev.GetEnded().GetOutcome()), Disclosure: publicDisclosure(reported.GetDisclosure()),
	}
	var errs [5]error
	c.ID, errs[0] = uuid.Parse(reported.GetCallId())
	c.WorkspaceID, errs[1] = uuid.Parse(ev.GetWorkspaceId())
	c.AgentID, errs[2] = uuid.Parse(reported.GetAgentId())
	c.ContactID, errs[3] = optionalID(reported.GetContactId())
	c.CallRequestID, errs[4] = optionalID(ev.GetCallRequestId())
	if err := errors.Join(errs[:]...); err != nil {
		return Call{}, fmt.Errorf("read ids of call %q: %w", reported.GetCallId(), err)
	}
	if !c.Status.Known() || (c.Direction != Inbound && c.Direction != Outbound) || c.Version < 1 {
		return Call{}, fmt.Errorf("call %s has status %q, direction %q, version %d", c.ID, c.Status, c.Direction, c.Version)
	}
	return c, nil
}

// publicDisclosure returns the disclosure as customers see it. It returns nil if the dialer did not
// report a disclosure.
func publicDisclosure(d *eventv1.Disclosure) *openapi.CallDisclosure {
	if d == nil {
		return nil
	}
	return &openapi.CallDisclosure{
		Text:       strings.ReplaceAll(d.GetText(), "\x00", ""),
		StartedAt:  openapi.TimestampOrNull(timeOrNil(d.GetStartedAt())),
		FinishedAt: openapi.TimestampOrNull(timeOrNil(d.GetFinishedAt())),
		CutAt:      openapi.TimestampOrNull(timeOrNil(d.GetCutAt())),
	}
}

// AnalysisFrom returns the analysis of an event. It returns an error if the summary or the
// transcript is not valid JSON.
func AnalysisFrom(ev *eventv1.Analysed) (Analysis, error) {
	a := Analysis{Outcome: ev.GetOutcome(), Summary: ev.GetSummaryJson(), Transcript: ev.GetTranscriptJson()}
	for name, doc := range map[string][]byte{"summary": a.Summary, "transcript": a.Transcript} {
		if len(doc) > 0 && (!json.Valid(doc) || !utf8.Valid(doc)) {
			return Analysis{}, fmt.Errorf("the %s is no JSON", name)
		}
	}
	if len(a.Summary) == 0 {
		a.Summary = nil
	}
	if len(a.Transcript) == 0 {
		a.Transcript = nil
	}
	return a, nil
}

// nonEmptyText returns s without NUL characters, because Postgres cannot store them. It returns nil
// if the result is empty.
func nonEmptyText(s string) *string {
	s = strings.ReplaceAll(s, "\x00", "")
	if s == "" {
		return nil
	}
	return &s
}

func timeOrNil(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}

func optionalID(s string) (*uuid.UUID, error) {
	if s == "" {
		return nil, nil //nolint:nilnil // an absent id is not an error
	}
	id, err := uuid.Parse(s)
	return &id, err
}
