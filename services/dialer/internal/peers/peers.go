// Package peers puts question 5 to contacts-compliance: may this number still be called, take note of this opt-out, who is this
// caller. It judges no answer.
package peers

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

const (
	checkPatience     = 2 * time.Second
	reportPatience    = 2 * time.Second
	recognisePatience = time.Second
	// good is how long an answer of the gate may be acted on (Law 2).
	good = 2 * time.Second
)

// Contacts asks contacts-compliance.
type Contacts struct {
	client compliancev1.DialCheckServiceClient
}

// New reaches contacts-compliance at its base URL, with tokens of keys.
func New(base string, keys *serviceauth.Keys) (*Contacts, error) {
	traced, err := otelconnect.NewInterceptor(otelconnect.WithoutMetrics())
	if err != nil {
		return nil, fmt.Errorf("trace questions: %w", err)
	}
	client := compliancev1.NewDialCheckServiceClient(serviceauth.Client(), base, connect.WithInterceptors(traced, keys.Ask("contacts-compliance")))
	return &Contacts{client: client}, nil
}

// Answer is what the gate said. Refused is nil and Until zero when the call may be placed.
type Answer struct {
	Refused *dialqueue.Refusal
	// TimeZone is where the person is, when the call may be placed; empty: not known.
	TimeZone string
	// Until is the next opening, when the request may wait for it.
	Until time.Time
	asked time.Time
}

// Good says whether the answer may still be acted on: it is at most two seconds old by this process's monotonic clock, counted from the
// asking.
func (a Answer) Good() bool { return time.Since(a.asked) < good }

// Since returns the answer with a validity that begins at the given time if that is earlier. Use it when
// other conditions of the dial were read at that time.
func (a Answer) Since(at time.Time) Answer {
	if at.Before(a.asked) {
		a.asked = at
	}
	return a
}

// Check asks the gates again at dial time. An error is no answer: nobody may be dialled on it.
func (c *Contacts) Check(ctx context.Context, r dialqueue.Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	question := &compliancev1.CheckRequest{
		CallRequestId: r.CallRequestID.String(), WorkspaceId: r.WorkspaceID.String(), ToE164: string(r.To),
		ScheduleIfOutsideHours: r.ScheduleIfOutsideHours,
	}
	if r.ContactID != nil {
		question.ContactId = r.ContactID.String()
	}
	answer := Answer{asked: time.Now()}
	said, err := c.client.Check(ctx, connect.NewRequest(question))
	if err != nil {
		return Answer{}, fmt.Errorf("ask the gate about request %s: %w", r.CallRequestID, err)
	}
	switch result := said.Msg.GetResult().(type) {
	case *compliancev1.CheckResponse_Open:
		answer.TimeZone = result.Open.GetTimeZone()
		return answer, nil
	case *compliancev1.CheckResponse_Closed:
		answer.Refused = &dialqueue.Refusal{Code: result.Closed.GetCode(), Detail: result.Closed.GetMessage()}
		return answer, nil
	case *compliancev1.CheckResponse_Later:
		answer.Until = result.Later.GetScheduledFor().AsTime()
		return answer, nil
	}
	return Answer{}, fmt.Errorf("ask the gate about request %s: an answer %T newer than this build", r.CallRequestID, said.Msg.GetResult())
}

// OptOut reports that a person asked not to be called again; nil means that it is on record.
func (c *Contacts) OptOut(ctx context.Context, o callstate.OptOut) error {
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	_, err := c.client.RecordOptOut(ctx, connect.NewRequest(&compliancev1.RecordOptOutRequest{
		WorkspaceId: o.WorkspaceID.String(), PhoneE164: o.PhoneE164, CallId: o.CallID.String(),
		HeardAt: timestamppb.New(o.HeardAt), Evidence: o.Evidence,
	}))
	if err != nil {
		return fmt.Errorf("report opt-out heard in %s: %w", o.CallID, err)
	}
	return nil
}

// Caller is who calls us. ContactID is nil for a stranger, TimeZone empty where it is not known.
type Caller struct {
	ContactID *uuid.UUID
	TimeZone  string
}

// Recognise finds who a caller is. An error: nobody can say now.
func (c *Contacts) Recognise(ctx context.Context, workspaceID uuid.UUID, number string) (Caller, error) {
	ctx, cancel := context.WithTimeout(ctx, recognisePatience)
	defer cancel()
	said, err := c.client.LookupCaller(ctx, connect.NewRequest(&compliancev1.LookupCallerRequest{
		WorkspaceId: workspaceID.String(), PhoneE164: number,
	}))
	if err != nil {
		return Caller{}, fmt.Errorf("recognise caller: %w", err)
	}
	who := Caller{TimeZone: said.Msg.GetTimeZone()}
	if said.Msg.GetContactId() == "" {
		return who, nil
	}
	contact, err := uuid.Parse(said.Msg.GetContactId())
	if err != nil {
		return Caller{}, fmt.Errorf("recognise caller: %w", err)
	}
	who.ContactID = &contact
	return who, nil
}
