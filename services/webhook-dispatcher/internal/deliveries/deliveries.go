// Package deliveries defines webhook deliveries and their attempts: ids, states, and the signed
// headers of a request. It does no I/O.
package deliveries

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/page"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// Status is the status of a delivery in the API.
type Status string

const (
	Queued    Status = "queued"
	Delivered Status = "delivered"
	Failed    Status = "failed"
	// Held is a queued delivery whose subscription is not active, or whose workspace is suspended
	// or has lost the webhooks feature.
	Held Status = "held"
	// Skipped is a delivery that was not queued. When the event was ingested, its subscription had
	// the status paused or failed, or its workspace had no webhooks feature.
	Skipped Status = "skipped"
)

// Statuses returns every status.
func Statuses() []string {
	return []string{string(Queued), string(Delivered), string(Failed), string(Held), string(Skipped)}
}

// ID returns the id of the delivery of an event to a subscription: a UUIDv7 that contains the time
// of the event in microseconds and a hash of both ids. So an event that is read twice still has
// only one delivery, and the order of the ids is the order of the events.
func ID(subscriptionID, eventID uuid.UUID, createdAt time.Time) uuid.UUID {
	id := uuid.NewSHA1(subscriptionID, eventID[:])
	milliseconds, microseconds := createdAt.UnixMilli(), createdAt.UnixMicro()%1000
	for i := range 6 {
		id[5-i] = byte(milliseconds >> (8 * i))
	}
	id[6], id[7] = 0x70|byte(microseconds>>8), byte(microseconds)
	return id
}

// CreatedAt returns the time of the event from the id of its delivery. ok is false for an id that
// an earlier version of this service created: such an id contains no time.
func CreatedAt(id uuid.UUID) (at time.Time, ok bool) {
	if id.Version() != 7 {
		return time.Time{}, false
	}
	microseconds := int64(id[6]&0x0f)<<8 | int64(id[7])
	return page.TimeOf(id).Add(time.Duration(microseconds * int64(time.Microsecond))), true
}

// Event is an event with the body that every attempt sends unchanged.
type Event struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	// ObjectID is the id of a call, a call request, a subscription or a workspace. It is nil for
	// webhook.test. Events with the same ObjectID are delivered in the order of Sequence.
	ObjectID  *uuid.UUID
	Type      string
	Sequence  int32
	Body      []byte
	CreatedAt time.Time
	// Erased is true if the data of the called person was erased before the event was published.
	// The body of such an event is deleted when no queued delivery needs the body.
	Erased bool
	// Excluded is the only subscription that does not receive the event, although it lists the
	// type. If it is uuid.Nil, no subscription is excluded.
	Excluded uuid.UUID
	// Traceparent is the W3C trace context of the call event. The attempts continue its trace.
	Traceparent string
}

// NewTest returns a webhook.test event for one subscription.
func NewTest(id, workspaceID, subscriptionID uuid.UUID, now time.Time) (Event, error) {
	shown := openapi.TimestampOf(now)
	sent := openapi.TestEvent{
		ID: id, Type: openapi.TestEventTypeWebhookTest, APIVersion: openapi.TestEventAPIVersionN20260604, CreatedAt: shown,
		WorkspaceID: workspaceID, Sequence: 1,
		Data: openapi.TestEventData{SubscriptionID: subscriptionID, Message: "This is a test. Your endpoint receives webhooks."},
	}
	body, err := json.Marshal(sent)
	if err != nil {
		return Event{}, fmt.Errorf("encode test event %s: %w", id, err)
	}
	return Event{ID: id, WorkspaceID: workspaceID, Type: string(sent.Type), Sequence: sent.Sequence, Body: body,
		CreatedAt: shown.Time}, nil
}

// NewSubscriptionEvent returns the event webhook_subscription.failing or
// webhook_subscription.failed of a subscription, for the other subscriptions of its workspace.
func NewSubscriptionEvent(
	event openapi.SubscriptionEventType, sub subscriptions.Subscription, sequence int32, now time.Time,
) (Event, error) {
	shown := openapi.TimestampOf(now)
	id := uuid.NewSHA1(sub.ID, fmt.Appendf(nil, "%s %d", event, sequence))
	body, err := json.Marshal(openapi.SubscriptionEvent{
		ID: id, Type: event, APIVersion: openapi.SubscriptionEventAPIVersionN20260604, CreatedAt: shown,
		WorkspaceID: sub.WorkspaceID, Sequence: sequence, Data: sub.View(),
	})
	if err != nil {
		return Event{}, fmt.Errorf("encode %s of subscription %s: %w", event, sub.ID, err)
	}
	return Event{
		ID: id, WorkspaceID: sub.WorkspaceID, ObjectID: &sub.ID, Type: string(event), Sequence: sequence, Body: body,
		CreatedAt: shown.Time, Excluded: sub.ID,
	}, nil
}

// Work is a claimed attempt. URL and Secret are the values of the subscription at the time of the
// claim. If the secret or the body cannot be read, its field is empty and the attempt fails with
// NotSendable.
type Work struct {
	DeliveryID     uuid.UUID
	SubscriptionID uuid.UUID
	EventID        uuid.UUID
	EventType      string
	// CreatedAt is the time of the event.
	CreatedAt time.Time
	CallID    *uuid.UUID
	// Attempt is the number of this attempt, from 1. A replay starts again with 1. Replay is the
	// number of the last replay, or 0 if the delivery was not replayed.
	Attempt int
	Replay  int
	// Lost is true if the last permitted attempt was claimed by a process that ended without a
	// result. Because no attempt is left, no request is sent.
	Lost bool
	// Retry is true if an earlier attempt failed. If an attempt had no result because its process
	// ended, it does not count as failed.
	Retry       bool
	URL         string
	Secret      string
	Body        []byte
	Traceparent string
	// DueAt is the time at which the attempt was due.
	DueAt time.Time
	// Age is the time since the delivery was queued. ClaimDelay is the time between DueAt and the
	// claim.
	Age        time.Duration
	ClaimDelay time.Duration
}

// Failure is the reason why an attempt failed. If it is empty, the attempt succeeded.
type Failure string

const (
	BadStatus        Failure = "http_status"
	Timeout          Failure = "timeout"
	NameNotResolved  Failure = "name_not_resolved"
	ConnectionFailed Failure = "connection_failed"
	TLSFailed        Failure = "tls_failed"
	BlockedAddress   Failure = "blocked_address"
	BadResponse      Failure = "invalid_answer"
	// NotSendable means that the body or the secret is missing, for example because a sealing key
	// was removed. No request was sent.
	NotSendable Failure = "not_sendable"
	// Interrupted means that the process ended during the last attempt.
	Interrupted Failure = "interrupted"
)

// Failures returns every failure.
func Failures() []Failure {
	return []Failure{BadStatus, Timeout, NameNotResolved, ConnectionFailed, TLSFailed, BlockedAddress, BadResponse, NotSendable, Interrupted}
}

// Internal reports whether the cause of the failure is in this service. An internal failure does
// not count as a failure of the endpoint.
func (f Failure) Internal() bool { return f == NotSendable || f == Interrupted }

// Cause returns the cause of a failed attempt in one sentence. code is the HTTP status, or 0.
// detail is Response.Detail. Cause returns "" if the attempt succeeded.
func (f Failure) Cause(code int, detail string) string {
	var text string
	switch f {
	case "":
		return ""
	case BadStatus:
		text = fmt.Sprintf("The endpoint responded with status %d", code)
		if code >= http.StatusMultipleChoices && code < http.StatusBadRequest {
			detail = "redirects are not followed"
		}
	case Timeout:
		text = "The attempt took too long"
	case NameNotResolved:
		text = "The host name was not resolved"
	case ConnectionFailed:
		text = "The connection failed"
	case TLSFailed:
		text = "The TLS handshake failed"
	case BlockedAddress:
		text = "The address of the host is in a private network, which is not allowed"
	case BadResponse:
		text = "The response is not valid HTTP"
	case NotSendable:
		text = "No request was sent, because the body or the signing secret could not be read"
	case Interrupted:
		text = "The service stopped during the attempt, so its result is unknown"
	default:
		text = "The attempt failed"
	}
	if detail != "" {
		text += ": " + detail
	}
	return text + "."
}

// Response is the result of one request.
type Response struct {
	// Code is the HTTP status. It is 0 if there was no response.
	Code    int
	Failure Failure
	// Detail is the exact cause of the failure. It is empty if the cause is unknown.
	Detail string
	// Excerpt is the beginning of the response body.
	Excerpt string
	// RetryAfter is the delay in the Retry-After header of a 429 or 503. It is 0 if the response
	// has no such header.
	RetryAfter time.Duration
	// At is when the attempt started.
	At       time.Time
	Duration time.Duration
	// Connected is true if the request was sent on a connection. Reused is true if an earlier
	// request had opened that connection.
	Connected bool
	Reused    bool
}

// Outcome is the effect of an attempt on its delivery.
type Outcome string

const (
	OutcomeDelivered Outcome = "delivered"
	OutcomeRetry     Outcome = "retry"
	OutcomeFailed    Outcome = "failed"
)

// Result is a finished attempt.
type Result struct {
	DeliveryID uuid.UUID
	Attempt    int
	Replay     int
	Outcome    Outcome
	// Delay is the time until the next attempt if Outcome is OutcomeRetry.
	Delay    time.Duration
	Response Response
}
