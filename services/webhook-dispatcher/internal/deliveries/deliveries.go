// Package deliveries defines webhook deliveries and their attempts: ids, states, the retry
// schedule, and the signed headers of a request. It does no I/O.
package deliveries

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
)

// Status is the status of a delivery in the operator API.
type Status string

const (
	Queued    Status = "queued"
	Delivered Status = "delivered"
	Failed    Status = "failed"
	// Held is a queued delivery whose subscription is not active, or whose workspace is suspended
	// or has lost the webhooks feature.
	Held Status = "held"
	// Skipped is a delivery that was not queued, because its subscription was paused or failed when
	// the event was ingested, or its workspace had no webhooks feature.
	Skipped Status = "skipped"
)

// Statuses lists every status.
func Statuses() []string {
	return []string{string(Queued), string(Delivered), string(Failed), string(Held), string(Skipped)}
}

// ID returns the id of the delivery of an event to a subscription. The id is a hash of both ids, so
// an event that is read twice still has only one delivery.
func ID(subscriptionID, eventID uuid.UUID) uuid.UUID {
	return uuid.NewSHA1(subscriptionID, eventID[:])
}

// Event is an event with the body that every attempt sends unchanged.
type Event struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	// CallID is nil for webhook.test.
	CallID    *uuid.UUID
	Type      string
	Sequence  int32
	Body      []byte
	CreatedAt time.Time
	// Erased is true if the data of the called person was erased before the event was published.
	// The body of such an event is deleted when no queued delivery needs the body.
	Erased bool
	// Traceparent continues the trace of the call event.
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
	// Attempt is counted from 1 within each replay. Replay is 0 before the first replay.
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

// Response is the result of one request.
type Response struct {
	// Code is the HTTP status. It is 0 if there was no response.
	Code    int
	Failure Failure
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
