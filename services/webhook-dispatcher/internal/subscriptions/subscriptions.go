// Package subscriptions defines webhook subscriptions: their states, event types, urls and secrets,
// and the rule that disables an endpoint that keeps failing.
package subscriptions

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/page"
	"ringfence.dev/proto/openapi"
)

// MaxActive is the maximum number of active subscriptions of a workspace
// (docs/reference/api/webhooks.md).
const MaxActive = 5

// MaxSubscriptions is the maximum number of subscriptions of a workspace, with any status. Even
// paused subscriptions are limited, because each event adds a row for every subscription that lists
// its type.
const MaxSubscriptions = 100

// These are the maximum lengths in characters (docs/reference/api/README.md#field-sizes).
const (
	maxName        = 200
	maxDescription = 500
)

// Status is the status of a subscription. Only an active subscription receives events. The service
// sets Failed when the FailureRule is met.
type Status string

const (
	Active Status = "active"
	Paused Status = "paused"
	Failed Status = "failed"
)

// TestEvent is the event type of test deliveries. A call never has an event of this type.
const TestEvent = string(openapi.EventTypeWebhookTest)

// eventTypes lists the types that a subscription can name. The list is part of error messages.
// Every subscription receives webhook.test, even if it does not name this type.
//
// The types after webhook.test are opt-in events.
const eventTypes = "call.ringing, call.answered, call.completed, call.failed, call.no_answer, call.busy, " + TestEvent +
	", call.analyzed, call.recording_ready, call_request.blocked, call_request.failed, call_request.canceled, " +
	"webhook_subscription.failing, webhook_subscription.failed, wallet.low_balance"

// Events returns every event type, including webhook.test.
func Events() []string { return strings.Split(eventTypes, ", ") }

// Subscription is a customer's endpoint with its status and health, without its secret.
type Subscription struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	Name        string
	URL         string
	Description string
	Events      []openapi.EventType
	Status      Status
	SecretLast4 string

	ConsecutiveFailures int32
	LastSuccessAt       *time.Time
	LastFailureAt       *time.Time

	// WarnedAt is the time at which half of each threshold of the failure rule was reached.
	// FailedAt and FailedReason are set while the status is Failed.
	WarnedAt     *time.Time
	FailedAt     *time.Time
	FailedReason *string
	// LastError is a code for operators, and LastCause is the same failure in one sentence. Both are
	// nil after a success. LastCause is also nil if an earlier version stored the failure.
	LastError *string
	LastCause *string
}

// LastFailure returns the cause of the last failure in one sentence, or nil after a success.
func (s Subscription) LastFailure() *string {
	if s.LastError == nil || s.LastCause != nil {
		return s.LastCause
	}
	text := "The last attempt failed: " + *s.LastError + "."
	return &text
}

// CreatedAt returns the time in the UUIDv7 of the subscription.
func (s Subscription) CreatedAt() time.Time { return page.TimeOf(s.ID) }

// MaskedSecret returns the prefix and the last four characters of the secret.
func (s Subscription) MaskedSecret() string { return secretPrefix + "…" + s.SecretLast4 }

// View returns the customer's view of a subscription (docs/reference/api/webhooks.md).
func (s Subscription) View() openapi.WebhookSubscription {
	return openapi.WebhookSubscription{
		ID: s.ID, Name: s.Name, URL: s.URL, Events: s.Events, Status: openapi.WebhookSubscriptionStatus(s.Status),
		SigningSecret: s.MaskedSecret(), ConsecutiveFailures: s.ConsecutiveFailures,
		LastSuccessAt: openapi.TimestampOrNull(s.LastSuccessAt),
		LastFailureAt: openapi.TimestampOrNull(s.LastFailureAt), CreatedAt: openapi.TimestampOf(s.CreatedAt()),
	}
}

const secretPrefix = "whsec_"

// NewSecret returns a random signing secret: whsec_ and 32 bytes in URL-safe base64.
func NewSecret() (string, error) {
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("generate signing secret: %w", err)
	}
	return secretPrefix + base64.RawURLEncoding.EncodeToString(raw), nil
}

// CheckName returns a validation error for a blank name and for a name that is too long.
func CheckName(name string) *apierr.Error {
	if strings.TrimSpace(name) == "" {
		return apierr.Validation("name", "is required: say what this subscription is for.")
	}
	if utf8.RuneCountInString(name) > maxName {
		return apierr.Validation("name", "is longer than %d characters.", maxName)
	}
	return nil
}

// CheckDescription returns a validation error for a text that is too long.
func CheckDescription(text string) *apierr.Error {
	if utf8.RuneCountInString(text) > maxDescription {
		return apierr.Validation("description", "is longer than %d characters.", maxDescription)
	}
	return nil
}

// CheckEvents removes repeated types and does not change the order of the others. It returns an
// error for an empty list and for an unknown type.
func CheckEvents(events []openapi.EventType) ([]openapi.EventType, error) {
	if len(events) == 0 {
		return nil, apierr.Unprocessable("no_events", "events must list at least one of %s.", eventTypes)
	}
	once := make([]openapi.EventType, 0, len(events))
	for _, event := range events {
		if !event.Valid() {
			return nil, apierr.Unprocessable("invalid_event_type", "events holds %q; the types are %s.", shorten(string(event)), eventTypes)
		}
		if !slices.Contains(once, event) {
			once = append(once, event)
		}
	}
	return once, nil
}

// ParseStatus returns the status in a JSON value. A request can set active and paused. It
// returns invalid_action for failed, and invalid_status for every other value, including null.
func ParseStatus(raw json.RawMessage) (Status, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		text = "" // a value that is not a string is an invalid status
	}
	switch status := Status(text); status {
	case Active, Paused:
		return status, nil
	case Failed:
		return "", apierr.Unprocessable("invalid_action", "status failed is set by the service alone; send active or paused.")
	default:
		return "", apierr.Unprocessable("invalid_status", "status must be active or paused, not %s.", shorten(string(raw)))
	}
}

// ActiveLimitReached returns the 409 error for a workspace that already has MaxActive active
// subscriptions.
func ActiveLimitReached() error {
	return apierr.Conflict("subscription_limit_reached",
		"This workspace already has %d active webhook subscriptions. Pause or delete one first.", MaxActive)
}

// TotalLimitReached returns the 409 error for a workspace that already has MaxSubscriptions
// subscriptions.
func TotalLimitReached() error {
	return apierr.Conflict("subscription_limit_reached",
		"This workspace already has %d webhook subscriptions, paused and failed ones included. Delete one first.", MaxSubscriptions)
}

// NotActive returns the 409 error for a test of a subscription that is not active.
func NotActive(status Status) error {
	return apierr.Conflict("subscription_not_active", "The subscription is %s. Set its status to active, then test it.", status)
}

// NotReplayable returns the 409 error for a replay to a subscription that is not active.
func NotReplayable(status Status) error {
	return apierr.Conflict("subscription_not_active", "The subscription is %s. Set its status to active, then replay.", status)
}

func shorten(text string) string {
	const maxRunes = 60
	if utf8.RuneCountInString(text) <= maxRunes {
		return text
	}
	return string([]rune(text)[:maxRunes]) + "…"
}
