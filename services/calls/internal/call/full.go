package call

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/money"
)

// Full is the call of GET /v1/calls/{id} and of every event (specification 2.2a). The keys recording_url
// and transcript are present only when there is one to be had; both features are off, so they never are.
type Full struct {
	CallID         uuid.UUID       `json:"call_id"`
	Direction      string          `json:"direction"`
	From           string          `json:"from"`
	To             string          `json:"to"`
	AgentID        uuid.UUID       `json:"agent_id"`
	ContactID      *uuid.UUID      `json:"contact_id"`
	CampaignID     *uuid.UUID      `json:"campaign_id"`
	Status         Status          `json:"status"`
	HangupCause    *string         `json:"hangup_cause"`
	Timings        Timings         `json:"timings"`
	CreditsCharged *money.Micro    `json:"credits_charged"`
	Outcome        *string         `json:"outcome"`
	Disposition    *string         `json:"disposition"`
	Summary        json.RawMessage `json:"summary"`
	ExternalRef    *string         `json:"external_ref"`
}

// Timings are the dialer's measurements.
type Timings struct {
	QueuedAt     *time.Time `json:"queued_at"`
	DialedAt     *time.Time `json:"dialed_at"`
	AnsweredAt   *time.Time `json:"answered_at"`
	EndedAt      *time.Time `json:"ended_at"`
	RingSeconds  *int32     `json:"ring_seconds"`
	TalkSeconds  *int32     `json:"talk_seconds"`
	TotalSeconds *int32     `json:"total_seconds"`
}

// Full renders the call as it is now.
func (c *Call) Full() Full {
	return Full{
		CallID:      c.ID,
		Direction:   c.Direction,
		From:        c.From,
		To:          c.To,
		AgentID:     c.AgentID,
		ContactID:   c.ContactID,
		Status:      c.Status,
		HangupCause: c.HangupCause,
		Timings: Timings{
			QueuedAt:     Stamp(c.QueuedAt),
			DialedAt:     Stamp(c.DialedAt),
			AnsweredAt:   Stamp(c.AnsweredAt),
			EndedAt:      Stamp(c.EndedAt),
			RingSeconds:  c.RingSeconds,
			TalkSeconds:  c.TalkSeconds,
			TotalSeconds: c.TotalSeconds,
		},
		CreditsCharged: c.Credits,
		Outcome:        c.Outcome,
		Disposition:    c.Disposition,
		Summary:        c.Summary,
		ExternalRef:    c.ExternalRef,
	}
}

// Stamp is an instant as customers see it: UTC, milliseconds.
func Stamp(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	utc := t.UTC().Truncate(time.Millisecond)
	return &utc
}
