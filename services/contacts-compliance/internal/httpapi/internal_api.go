package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/services/contacts-compliance/internal/checks"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// PreCheck runs the pre-check of a new call request. A refusal is a response, not an error.
func (a *API) PreCheck(ctx context.Context,
	r *connect.Request[compliancev1.PreCheckRequest]) (*connect.Response[compliancev1.PreCheckResponse], error) {
	q, err := requestTarget(ctx, r.Msg.GetWorkspaceId(), r.Msg.GetToE164(), r.Msg.GetCallRequestId())
	if err != nil {
		return nil, err
	}
	if named := r.Msg.GetContactId(); named != "" {
		contactID, unreadable := uuid.Parse(named)
		if unreadable != nil || contactID == uuid.Nil {
			return refused("invalid_contact", "contact_id is no UUID."), nil //nolint:nilerr // a refusal is a response
		}
		q.NamedContact = contactID
	}
	q.Destinations = destinations(r.Msg.GetDestinations())
	req := checks.PreCheckRequest{Target: q, Variables: r.Msg.GetVariablesJson(),
		DeferIfClosed: r.Msg.GetScheduleIfOutsideHours()}
	if r.Msg.GetScheduledFor() != nil {
		req.At = r.Msg.GetScheduledFor().AsTime()
	}
	allowed, err := a.checks.PreCheck(ctx, req)
	var refusal *apierr.Error
	if errors.As(err, &refusal) {
		return refused(refusal.Code, refusal.Message), nil
	}
	if err != nil {
		return nil, rpcError(ctx, err)
	}
	return connect.NewResponse(
		&compliancev1.PreCheckResponse{Result: &compliancev1.PreCheckResponse_Allowed{Allowed: &compliancev1.Allowed{
			ContactId: allowed.ContactID.String(), VariablesJson: allowed.Variables.Encode(),
			ScheduledFor: timestamppb.New(allowed.ScheduledFor),
			Erasures:     allowed.Erasures,
		}}}), nil
}

func refused(code, message string) *connect.Response[compliancev1.PreCheckResponse] {
	return connect.NewResponse(&compliancev1.PreCheckResponse{Result: &compliancev1.PreCheckResponse_Refused{
		Refused: &compliancev1.Refused{Code: code, Message: message},
	}})
}

// Check runs the dial-time check of a call request.
func (a *API) Check(ctx context.Context,
	r *connect.Request[compliancev1.CheckRequest]) (*connect.Response[compliancev1.CheckResponse], error) {
	q, err := requestTarget(ctx, r.Msg.GetWorkspaceId(), r.Msg.GetToE164(), r.Msg.GetCallRequestId())
	if err != nil {
		return nil, err
	}
	q.Destinations = destinations(r.Msg.GetDestinations())
	checked, err := a.checks.Check(ctx, q, r.Msg.GetScheduleIfOutsideHours())
	if err != nil {
		return nil, rpcError(ctx, err)
	}
	response := &compliancev1.CheckResponse{}
	switch checked.Result {
	case gate.Open:
		response.Result = &compliancev1.CheckResponse_Open{Open: &compliancev1.Open{TimeZone: checked.TimeZone}}
	case gate.Deferred:
		response.Result = &compliancev1.CheckResponse_Later{Later: &compliancev1.Later{ScheduledFor: timestamppb.New(
			checked.At)}}
	case gate.Denied:
		response.Result = &compliancev1.CheckResponse_Closed{Closed: &compliancev1.Closed{Code: checked.Code,
			Message: checked.Message}}
	}
	return connect.NewResponse(response), nil
}

// destinations returns nil if the caller sent no destinations.
func destinations(sent *compliancev1.Destinations) *[]string {
	if sent == nil {
		return nil
	}
	return &sent.Prefixes
}

// RecordOptOut stores an opt-out that a person asked for in a call.
func (a *API) RecordOptOut(ctx context.Context,
	r *connect.Request[compliancev1.RecordOptOutRequest]) (*connect.Response[compliancev1.RecordOptOutResponse], error) {
	q, err := numberTarget(r.Msg.GetWorkspaceId(), r.Msg.GetPhoneE164())
	if err != nil {
		return nil, err
	}
	callID, err := uuid.Parse(r.Msg.GetCallId())
	if err != nil || callID == uuid.Nil {
		return nil, invalid("call_id is no UUID")
	}
	trace.SpanFromContext(ctx).SetAttributes(telemetry.CallID(callID.String()))
	proof := map[string]string{"call_id": callID.String()}
	if quote := r.Msg.GetEvidence(); quote != "" {
		proof["said"] = quote
	}
	evidence, err := json.Marshal(proof)
	if err != nil {
		return nil, rpcError(ctx, err)
	}
	change := contacts.Change{
		WorkspaceID: q.WorkspaceID, Number: q.Number, Kind: contacts.OptOut, Source: contacts.SourceCall,
		Actor: "call:" + callID.String(), Evidence: evidence, CallID: callID, OccurredAt: heardAt(r.Msg),
	}
	if _, err := a.store.Record(ctx, change, store.CreateUnknown); err != nil {
		return nil, rpcError(ctx, err)
	}
	return connect.NewResponse(&compliancev1.RecordOptOutResponse{}), nil
}

func heardAt(m *compliancev1.RecordOptOutRequest) time.Time {
	if m.GetHeardAt() == nil {
		return time.Time{}
	}
	return m.GetHeardAt().AsTime()
}

// LookupCaller returns the contact of an inbound caller.
func (a *API) LookupCaller(ctx context.Context,
	r *connect.Request[compliancev1.LookupCallerRequest]) (*connect.Response[compliancev1.LookupCallerResponse], error) {
	q, err := numberTarget(r.Msg.GetWorkspaceId(), r.Msg.GetPhoneE164())
	if err != nil {
		return nil, err
	}
	known, err := a.checks.LookupCaller(ctx, q)
	if err != nil {
		return nil, rpcError(ctx, err)
	}
	return connect.NewResponse(&compliancev1.LookupCallerResponse{ContactId: known.ContactID, TimeZone: known.TimeZone}),
		nil
}

// requestTarget parses the number and the id of the call request, and adds the id to the trace
// span.
func requestTarget(ctx context.Context, workspace, number, requestID string) (store.Target, error) {
	q, err := numberTarget(workspace, number)
	if err != nil {
		return q, err
	}
	if q.CallRequestID, err = uuid.Parse(requestID); err != nil || q.CallRequestID == uuid.Nil {
		return q, invalid("call_request_id is no UUID")
	}
	trace.SpanFromContext(ctx).SetAttributes(telemetry.CallRequestID(requestID))
	return q, nil
}

func numberTarget(workspace, number string) (q store.Target, err error) {
	if q.WorkspaceID, err = uuid.Parse(workspace); err != nil || q.WorkspaceID == uuid.Nil {
		return q, invalid("workspace_id is no UUID")
	}
	var ok bool
	if q.Number, ok = phone.Parse(number); !ok {
		return q, invalid("the number is not E.164")
	}
	return q, nil
}

func invalid(what string) error {
	return connect.NewError(connect.CodeInvalidArgument, errors.New(what))
}

// rpcError converts an error to a Connect error. If a dial-time check fails, the dialer does not
// dial.
func rpcError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, errors.New("the caller canceled the request"))
	case pg.IsDown(err):
		slog.WarnContext(ctx, "database unavailable", "error", err)
		return connect.NewError(connect.CodeUnavailable, errors.New("the database is not available"))
	default:
		slog.ErrorContext(ctx, "internal API request failed", "error", err)
		return connect.NewError(connect.CodeInternal, errors.New("internal error"))
	}
}
