// Package subscriptions owns what a webhook subscription is: its states, the event types it may list, the rules of
// its url and secret, and when an endpoint counts as failed. It does not know how deliveries travel.
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

// MaxActive is how many active subscriptions a workspace may have (spec part 8).
const MaxActive = 5

// MaxSubscriptions is how many subscriptions of any status a workspace may have: each event leaves a row for everyone that lists it, a paused one too.
const MaxSubscriptions = 100

// Limits of contract.md §6, in characters.
const (
	maxName        = 200
	maxDescription = 500
)

// Status is where a subscription stands (spec 3.3).
type Status string

const (
	Active Status = "active"
	Paused Status = "paused"
	Failed Status = "failed"
)

// TestEvent is the type that only the test endpoint sends.
const TestEvent = string(openapi.EventTypeWebhookTest)

// eventTypes are the types a subscription may list (spec 6.1), for people; webhook.test in a list does nothing.
const eventTypes = "call.ringing, call.answered, call.completed, call.failed, call.no_answer, call.busy, " + TestEvent

// Events lists every event type, webhook.test too.
func Events() []string { return strings.Split(eventTypes, ", ") }

// Subscription is one customer endpoint with its standing. The secret is not part of it.
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

	// WarnedAt is when half of the failure rule was met; FailedAt, FailedReason and LastError are the flag
	// operators see until the subscription is active again.
	WarnedAt     *time.Time
	FailedAt     *time.Time
	FailedReason *string
	LastError    *string
}

// CreatedAt is the instant inside the id.
func (s Subscription) CreatedAt() time.Time { return page.TimeOf(s.ID) }

// MaskedSecret shows that there is a secret and how it ends (spec 2.6).
func (s Subscription) MaskedSecret() string { return secretPrefix + "…" + s.SecretLast4 }

const secretPrefix = "whsec_"

// NewSecret draws a signing secret: whsec_ and 32 random bytes in URL-safe base64.
func NewSecret() (string, error) {
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("draw signing secret: %w", err)
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

// CheckEvents refuses an empty list and unknown types; what it returns has each type once, in the order given.
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

// ParseStatus returns the status in a JSON value. A request can set active and paused. ParseStatus
// refuses failed with invalid_action, and every other JSON value, null included, with
// invalid_status.
func ParseStatus(raw json.RawMessage) (Status, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		text = "" // not a string, so no status
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

// ActiveLimitReached is the 409 of the sixth active subscription.
func ActiveLimitReached() error {
	return apierr.Conflict("subscription_limit_reached",
		"This workspace already has %d active webhook subscriptions. Pause or delete one first.", MaxActive)
}

// TotalLimitReached is the 409 of a subscription beyond MaxKept.
func TotalLimitReached() error {
	return apierr.Conflict("subscription_limit_reached",
		"This workspace already has %d webhook subscriptions, paused and failed ones included. Delete one first.", MaxSubscriptions)
}

// NotActive is the 409 of a test for a subscription that would not receive it.
func NotActive(status Status) error {
	return apierr.Conflict("subscription_not_active", "The subscription is %s. Set its status to active, then test it.", status)
}

// NotReplayable is the 409 of a replay to a subscription that would not receive it.
func NotReplayable(status Status) error {
	return apierr.Conflict("subscription_not_active", "The subscription is %s. Set its status to active, then replay.", status)
}

func shorten(text string) string {
	const most = 60
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "…"
}
