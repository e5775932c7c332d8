package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/proxy"
)

// timeline reads the data that other services have stored about one call request.
type timeline struct {
	peers  *proxy.Upstreams
	caller serviceauth.Caller

	request    openapi.CallRequest
	decisions  []openapi.Decision
	attempts   []dialAttempt
	call       *openapi.Call // nil if there is no call, or if it was deleted after its retention
	deliveries []callDelivery
}

// dialAttempt is a dial attempt in the response of the dialer.
type dialAttempt struct {
	ID          uuid.UUID          `json:"id"`
	CallID      uuid.UUID          `json:"call_id"`
	SIPCallID   string             `json:"sip_call_id"`
	SIPStatus   *int32             `json:"sip_status"`
	SIPReason   *string            `json:"sip_reason"`
	HangupCause *string            `json:"hangup_cause"`
	Error       *string            `json:"error"`
	StartedAt   openapi.Timestamp  `json:"started_at"`
	EndedAt     *openapi.Timestamp `json:"ended_at"`
}

// callDelivery is a delivery of an event of the request or of its call, in the response of
// webhook-dispatcher.
type callDelivery struct {
	ID             uuid.UUID          `json:"id"`
	SubscriptionID uuid.UUID          `json:"subscription_id"`
	EventID        uuid.UUID          `json:"event_id"`
	EventType      string             `json:"event_type"`
	Status         string             `json:"status"`
	CreatedAt      openapi.Timestamp  `json:"created_at"`
	NextAttemptAt  *openapi.Timestamp `json:"next_attempt_at"`
	Attempts       []struct {
		At         openapi.Timestamp `json:"at"`
		StatusCode *int              `json:"status_code"`
		Error      *string           `json:"error"`
		DurationMs int               `json:"duration_ms"`
	} `json:"attempts"`
}

// writeTimeline handles GET …/call-requests/{id}/timeline. It reads the request, and then
// concurrently the data of the other services. If one service is unavailable, the response is 503.
func writeTimeline(w http.ResponseWriter, r *http.Request, peers *proxy.Upstreams, caller serviceauth.Caller,
	id string) error {
	requestID, err := uuid.Parse(id)
	if err != nil || len(id) != 36 { // uuid.Parse also accepts forms that are not 36 characters long
		return apierr.NotFound("call request")
	}
	t := timeline{peers: peers, caller: caller}
	ctx := r.Context()
	if err := t.get(ctx, proxy.Calls, "/v1/call-requests/"+requestID.String(), nil, &t.request); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		query := url.Values{"call_request_id": {requestID.String()}}
		t.decisions, err = all[openapi.Decision](ctx, &t, proxy.Contacts, "/v1/decisions", query)
		return err
	})
	group.Go(func() (err error) {
		query := url.Values{"of": {requestID.String()}}
		t.attempts, err = all[dialAttempt](ctx, &t, proxy.Dialer, "/internal/v1/attempts", query)
		return err
	})
	if call := t.request.CallID; call != nil {
		group.Go(func() error { return t.readCall(ctx, call.String()) })
	}
	if caller.Webhooks {
		group.Go(func() error { return t.readDeliveries(ctx, requestID) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, openapi.Timeline{CallRequestID: requestID, Data: t.entries()})
}

// readTimeline handles GET /admin/v1/workspaces/{id}/call-requests/{request_id}/timeline.
func (a *Admin) readTimeline(w http.ResponseWriter, r *http.Request) error {
	workspace, err := a.workspaceOf(r)
	if err != nil {
		return err
	}
	caller := actorOf(r).ownerCaller(workspace)
	caller.Webhooks = true // operators see deliveries even if the workspace has no webhooks feature
	return writeTimeline(w, r, a.peers, caller, httpserver.PathText(r, "request_id"))
}

func (t *timeline) get(ctx context.Context, owner, path string, query url.Values, into any) error {
	response, err := t.peers.Do(ctx, proxy.OwnerRequest{Owner: owner, Method: http.MethodGet, Path: &url.URL{Path: path},
		Query: query.Encode(), Caller: t.caller})
	if err != nil {
		return err
	}
	if !response.OK() {
		return response.Refusal(owner)
	}
	if err := json.Unmarshal(response.Body, into); err != nil {
		return fmt.Errorf("read %s of %s: %w", path, owner, err)
	}
	return nil
}

func (t *timeline) readCall(ctx context.Context, id string) error {
	var call openapi.Call
	err := t.get(ctx, proxy.Calls, "/v1/calls/"+id, nil, &call)
	if refused, ok := errors.AsType[*apierr.Error](err); ok && refused.Status == http.StatusNotFound {
		return nil
	}
	if err == nil {
		t.call = &call
	}
	return err
}

// readDeliveries reads the deliveries of the events of the request and of its call.
func (t *timeline) readDeliveries(ctx context.Context, requestID uuid.UUID) error {
	objects := []uuid.UUID{requestID}
	if call := t.request.CallID; call != nil {
		objects = append(objects, *call)
	}
	for _, id := range objects {
		var found struct{ Data []callDelivery }
		if err := t.get(ctx, proxy.Webhooks, "/internal/v1/calls/"+id.String()+"/deliveries", nil, &found); err != nil {
			return err
		}
		t.deliveries = append(t.deliveries, found.Data...)
	}
	return nil
}

// These constants limit the reads of one list from another service.
const (
	timelinePage  = 100
	timelinePages = 10
)

// all returns at most timelinePages pages of a list, newest item first.
func all[Item any](ctx context.Context, t *timeline, owner, path string, query url.Values) (items []Item, err error) {
	query.Set("limit", fmt.Sprint(timelinePage))
	for range timelinePages {
		var page struct {
			Data    []json.RawMessage
			HasMore bool `json:"has_more"`
		}
		if err := t.get(ctx, owner, path, query, &page); err != nil {
			return nil, err
		}
		var last struct{ ID string }
		for _, raw := range page.Data {
			var item Item
			if err := json.Unmarshal(raw, &item); err != nil {
				return nil, fmt.Errorf("read an item of %s: %w", path, err)
			}
			if err := json.Unmarshal(raw, &last); err != nil {
				return nil, fmt.Errorf("read the id of an item of %s: %w", path, err)
			}
			items = append(items, item)
		}
		if !page.HasMore || last.ID == "" {
			break
		}
		query.Set("starting_after", last.ID)
	}
	return items, nil
}

// entries returns the entries in the order of their times. Entries with the same time are ordered
// by kind: creation, decisions, attempts, call, end of the request, deliveries.
func (t *timeline) entries() []openapi.TimelineEntry {
	entries := []openapi.TimelineEntry{
		{
			At:       t.request.CreatedAt,
			Type:     "call_request.created",
			ObjectID: t.request.ID,
			Message:  "The call request was created.",
			Details:  map[string]any{"to": t.request.To, "agent_id": t.request.AgentID, "external_ref": t.request.ExternalRef},
		},
	}
	for _, d := range slices.Backward(t.decisions) {
		entries = append(entries, decisionEntry(d))
	}
	for _, a := range slices.Backward(t.attempts) {
		entries = append(entries, a.entries()...)
	}
	if t.call != nil {
		entries = append(entries, callEntries(*t.call)...)
	}
	if at := t.request.CompletedAt; at != nil {
		entries = append(entries, openapi.TimelineEntry{
			At: *at, Type: "call_request." + string(t.request.Status), ObjectID: t.request.ID,
			Message: endMessage(t.request),
			Details: map[string]any{"error_code": t.request.ErrorCode, "error_detail": t.request.ErrorDetail},
		})
	}
	for _, d := range t.deliveries {
		entries = append(entries, d.entries()...)
	}
	slices.SortStableFunc(entries, func(a, b openapi.TimelineEntry) int { return a.At.Compare(b.At.Time) })
	return entries
}

func endMessage(req openapi.CallRequest) string {
	message := "The call request ended as " + string(req.Status) + "."
	if req.ErrorCode != nil {
		message = fmt.Sprintf("The call request ended as %s with %s.", req.Status, *req.ErrorCode)
	}
	return message
}

func decisionEntry(d openapi.Decision) openapi.TimelineEntry {
	stage := map[string]string{"precheck": "pre-check", "dial": "dial-time check"}[d.Kind]
	entry := openapi.TimelineEntry{
		At: d.JudgedAt, Type: "decision", ObjectID: d.ID,
		Details: map[string]any{"kind": d.Kind, "result": d.Result, "code": d.Code, "call_at": d.CallAt, "gates": d.Gates},
	}
	switch {
	case d.Result == "open":
		entry.Message = "The " + stage + " allowed the call."
	case d.Result == "later" && d.CallAt != nil:
		entry.Message = fmt.Sprintf("The %s deferred the call to %s.", stage, d.CallAt.Format(time.RFC3339))
	default:
		entry.Message = "The " + stage + " refused the call."
	}
	if d.Message != nil {
		entry.Message += " " + *d.Message
	}
	return entry
}

func (a dialAttempt) entries() []openapi.TimelineEntry {
	entries := []openapi.TimelineEntry{{
		At: a.StartedAt, Type: "attempt.started", ObjectID: a.ID, Message: "An attempt to dial started.",
		Details: map[string]any{"call_id": a.CallID, "sip_call_id": a.SIPCallID},
	}}
	if a.EndedAt == nil {
		return entries
	}
	return append(entries, openapi.TimelineEntry{
		At:       *a.EndedAt,
		Type:     "attempt.ended",
		ObjectID: a.ID,
		Message:  "The attempt to dial ended" + becauseOf(a.HangupCause) + ".",
		Details: map[string]any{"call_id": a.CallID, "sip_call_id": a.SIPCallID, "sip_status": a.SIPStatus,
			"sip_reason": a.SIPReason, "hangup_cause": a.HangupCause, "error": a.Error},
	})
}

func becauseOf(cause *string) string {
	if cause == nil {
		return ""
	}
	return " with " + *cause
}

func callEntries(call openapi.Call) (entries []openapi.TimelineEntry) {
	for _, step := range []struct {
		at            *openapi.Timestamp
		name, message string
		details       map[string]any
	}{
		{
			call.Timings.DialedAt, "call.dialed", "The call was sent to the carrier.",
			map[string]any{"from": call.From, "to": call.To},
		},
		{call.Timings.AnsweredAt, "call.answered", "The call was answered.", map[string]any{}},
		{
			call.Timings.EndedAt, "call.ended", "The call ended as " + string(call.Status) + becauseOf(call.HangupCause) + ".",
			map[string]any{"status": call.Status, "hangup_cause": call.HangupCause, "talk_seconds": call.Timings.TalkSeconds,
				"outcome": call.Outcome, "disposition": call.Disposition, "credits_charged": call.CreditsCharged},
		},
	} {
		if step.at != nil {
			entries = append(entries, openapi.TimelineEntry{At: *step.at, Type: step.name, ObjectID: call.CallID,
				Message: step.message, Details: step.details})
		}
	}
	return entries
}

func (d callDelivery) entries() []openapi.TimelineEntry {
	of := map[string]any{"event_id": d.EventID, "event_type": d.EventType, "subscription_id": d.SubscriptionID}
	created := map[string]any{"status": d.Status, "next_attempt_at": d.NextAttemptAt}
	for name, value := range of {
		created[name] = value
	}
	entries := []openapi.TimelineEntry{{
		At: d.CreatedAt, Type: "delivery.created", ObjectID: d.ID, Details: created,
		Message: fmt.Sprintf("A delivery of %s was created; it is now %s.", d.EventType, d.Status),
	}}
	for _, a := range d.Attempts {
		details := map[string]any{"status_code": a.StatusCode, "error": a.Error, "duration_ms": a.DurationMs}
		for name, value := range of {
			details[name] = value
		}
		entries = append(
			entries,
			openapi.TimelineEntry{At: a.At, Type: "delivery.attempted", ObjectID: d.ID, Details: details,
				Message: attemptMessage(d.EventType, a.StatusCode, a.Error)},
		)
	}
	return entries
}

func attemptMessage(event string, status *int, fault *string) string {
	var result []string
	if status != nil {
		result = append(result, fmt.Sprintf("the endpoint responded %d", *status))
	}
	if fault != nil {
		result = append(result, *fault)
	}
	if len(result) == 0 {
		return fmt.Sprintf("An attempt to deliver %s was made.", event)
	}
	return fmt.Sprintf("An attempt to deliver %s was made: %s.", event, strings.Join(result, ", "))
}
