// Package deliveries owns what one delivery is: its identity, states and attempts, when the next attempt is due, and
// what is signed. It opens no connection and keeps nothing.
package deliveries

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
)

// Status is where a delivery stands, as operators see it.
type Status string

const (
	Queued    Status = "queued"
	Delivered Status = "delivered"
	Failed    Status = "failed"
	// Held is a queued delivery whose subscription is not active, or whose workspace is suspended or
	// has lost the webhooks feature.
	Held Status = "held"
	// Skipped is what a pause or failure left out when the event was ingested.
	Skipped Status = "skipped"
)

// Statuses lists every status.
func Statuses() []string {
	return []string{string(Queued), string(Delivered), string(Failed), string(Held), string(Skipped)}
}

// ID is the identity of the delivery of one event to one subscription, the same however often the event is read.
func ID(subscriptionID, eventID uuid.UUID) uuid.UUID {
	return uuid.NewSHA1(subscriptionID, eventID[:])
}

// Event is one event as it is stored: the bytes every attempt sends.
type Event struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	// CallID is nil for webhook.test.
	CallID    *uuid.UUID
	Type      string
	Sequence  int32
	Body      []byte
	CreatedAt time.Time
	// Erased says that the person of the call was erased: the body is not kept longer than it is waited for.
	Erased bool
	// Traceparent is the trace of the fact.
	Traceparent string
}

// NewTest makes the webhook.test event for one subscription (contract.md §5).
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

// Work is one claimed attempt with everything it needs: url and secret are those of the instant of the claim.
type Work struct {
	DeliveryID     uuid.UUID
	SubscriptionID uuid.UUID
	EventID        uuid.UUID
	EventType      string
	// CreatedAt is the event's, as its body says it.
	CreatedAt time.Time
	CallID    *uuid.UUID
	// Attempt counts from 1, and again with each Replay; the first round is replay 0.
	Attempt int
	Replay  int
	// Lost is true if the last attempt was claimed by a process that ended without a result. All
	// attempts are used, so nothing is sent.
	Lost bool
	// Retry says that an earlier attempt failed, not merely that one was lost in a crash.
	Retry       bool
	URL         string
	Secret      string
	Body        []byte
	Traceparent string
	// DueAt is when the attempt was due.
	DueAt time.Time
	// Waited is how long the delivery has existed, Lag how long after its due time it was claimed.
	Age        time.Duration
	ClaimDelay time.Duration
}

// Failure is why an attempt failed, a closed set; "" is success.
type Failure string

const (
	BadStatus        Failure = "http_status"
	Timeout          Failure = "timeout"
	NameNotResolved  Failure = "name_not_resolved"
	ConnectionFailed Failure = "connection_failed"
	TLSFailed        Failure = "tls_failed"
	BlockedAddress   Failure = "blocked_address"
	BadResponse      Failure = "invalid_answer"
	// Unsendable: we have no body or secret to send with (a sealing key was taken away).
	NotSendable Failure = "not_sendable"
	// Interrupted: the process died during the last attempt.
	Interrupted Failure = "interrupted"
)

// Failures are all of them.
func Failures() []Failure {
	return []Failure{BadStatus, Timeout, NameNotResolved, ConnectionFailed, TLSFailed, BlockedAddress, BadResponse, NotSendable, Interrupted}
}

// Internal says that the failure says nothing about the endpoint: it was never asked, or we did not see its answer.
func (f Failure) Internal() bool { return f == NotSendable || f == Interrupted }

// Response is what became of one request.
type Response struct {
	// Code is the HTTP status, 0 when none came.
	Code    int
	Failure Failure
	// Excerpt is the beginning of the answer's body.
	Excerpt string
	// RetryAfter is what a 429 or 503 asked for.
	RetryAfter time.Duration
	At         time.Time
	Duration   time.Duration
	// Connected says that there was a connection to send on, Reused that an earlier request had left it.
	Connected bool
	Reused    bool
}

// Outcome is what an attempt means for its delivery.
type Outcome string

const (
	OutcomeDelivered Outcome = "delivered"
	OutcomeRetry     Outcome = "retry"
	OutcomeFailed    Outcome = "failed"
)

// Result is one finished attempt on its way into history.
type Result struct {
	DeliveryID uuid.UUID
	Attempt    int
	Replay     int
	Outcome    Outcome
	// Delay is how long to wait when Outcome is Again.
	Delay    time.Duration
	Response Response
}
