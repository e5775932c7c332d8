// Package peers contains the clients of contacts-compliance and billing-wallet. The dialer uses
// contacts-compliance for the dial-time check, for reporting an opt-out, and for looking up a
// caller. It uses billing-wallet to reserve the price of an inbound call.
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
	checkTimeout     = 2 * time.Second
	reportTimeout    = 2 * time.Second
	recogniseTimeout = time.Second
	// validity is how long a result of the gates permits a dial.
	validity = 2 * time.Second
)

// Contacts is a client of contacts-compliance. It is safe for concurrent use.
type Contacts struct {
	client compliancev1.DialCheckServiceClient
}

// New returns a client of the service at the base URL. The client signs its tokens with keys.
func New(base string, keys *serviceauth.Keys) (*Contacts, error) {
	traced, err := otelconnect.NewInterceptor(otelconnect.WithoutMetrics())
	if err != nil {
		return nil, fmt.Errorf("trace requests: %w", err)
	}
	client := compliancev1.NewDialCheckServiceClient(
		serviceauth.Client(),
		base,
		connect.WithInterceptors(traced, keys.ClientInterceptor("contacts-compliance")),
	)
	return &Contacts{client: client}, nil
}

// Answer is the result of a dial-time check. The call may be placed if Refused is nil and Until is
// zero.
type Answer struct {
	Refused *dialqueue.Refusal
	// TimeZone is the person's time zone. It is empty if the time zone is not known, or if the call
	// may not be placed.
	TimeZone string
	// Until is the start of the next calling window if the call request may wait for it. Otherwise
	// Until is zero.
	Until     time.Time
	checkedAt time.Time
}

// IsValid reports whether the result still permits a dial. A result is valid for 2 s after the
// start of the check, by this process's monotonic clock.
func (a Answer) IsValid() bool { return time.Since(a.checkedAt) < validity }

// Since returns a copy of the result that is valid for 2 s after the start of the check or after
// readAt, whichever is earlier. At readAt, the dialer read the other conditions of the dial.
func (a Answer) Since(readAt time.Time) Answer {
	if readAt.Before(a.checkedAt) {
		a.checkedAt = readAt
	}
	return a
}

// Check runs the dial-time check. After an error, the call request must not be dialed. workspace
// can be nil. Otherwise it contains the permitted destinations against which the dialer has already
// checked the number.
func (c *Contacts) Check(ctx context.Context, r dialqueue.Request, workspace *dialqueue.Workspace) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	request := &compliancev1.CheckRequest{
		CallRequestId: r.CallRequestID.String(), WorkspaceId: r.WorkspaceID.String(), ToE164: string(r.To),
		ScheduleIfOutsideHours: r.ScheduleIfOutsideHours,
	}
	if r.ContactID != nil {
		request.ContactId = r.ContactID.String()
	}
	if workspace != nil {
		request.Destinations = &compliancev1.Destinations{Prefixes: workspace.Destinations}
	}
	answer := Answer{checkedAt: time.Now()}
	response, err := c.client.Check(ctx, connect.NewRequest(request))
	if err != nil {
		return Answer{}, fmt.Errorf("check gates of request %s: %w", r.CallRequestID, err)
	}
	switch result := response.Msg.GetResult().(type) {
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
	return Answer{}, fmt.Errorf(
		"check gates of request %s: unknown result %T",
		r.CallRequestID,
		response.Msg.GetResult(),
	)
}

// OptOut reports that a person asked not to be called again. It returns nil if contacts-compliance
// has stored the opt-out.
func (c *Contacts) OptOut(ctx context.Context, o callstate.OptOut) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	_, err := c.client.RecordOptOut(ctx, connect.NewRequest(&compliancev1.RecordOptOutRequest{
		WorkspaceId: o.WorkspaceID.String(), PhoneE164: o.PhoneE164, CallId: o.CallID.String(),
		HeardAt: timestamppb.New(o.HeardAt), Evidence: o.Evidence,
	}))
	if err != nil {
		return fmt.Errorf("report opt-out of call %s: %w", o.CallID, err)
	}
	return nil
}

// Caller is the person who calls. ContactID is nil if no contact has the person's number. TimeZone
// is empty if the time zone is not known.
type Caller struct {
	ContactID *uuid.UUID
	TimeZone  string
}

// Recognise looks up a caller's contact and time zone by the phone number.
func (c *Contacts) Recognise(ctx context.Context, workspaceID uuid.UUID, number string) (Caller, error) {
	ctx, cancel := context.WithTimeout(ctx, recogniseTimeout)
	defer cancel()
	response, err := c.client.LookupCaller(ctx, connect.NewRequest(&compliancev1.LookupCallerRequest{
		WorkspaceId: workspaceID.String(), PhoneE164: number,
	}))
	if err != nil {
		return Caller{}, fmt.Errorf("recognise caller: %w", err)
	}
	caller := Caller{TimeZone: response.Msg.GetTimeZone()}
	if response.Msg.GetContactId() == "" {
		return caller, nil
	}
	contact, err := uuid.Parse(response.Msg.GetContactId())
	if err != nil {
		return Caller{}, fmt.Errorf("recognise caller: %w", err)
	}
	caller.ContactID = &contact
	return caller, nil
}
