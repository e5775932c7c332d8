package callstate

import (
	"encoding/json"

	"ringfence.dev/proto/openapi"
)

// Full is the call as it is now, as GET /v1/calls/{id} and every event show it (specification 2.2a). The key transcript is present only when there is one that may be shown.
// recording_url is whoever's who can sign one, and in no event: it would be a secret on a topic, and dead after an hour.
func (c *Call) Full() openapi.Call {
	full := openapi.Call{
		CallID:      c.ID,
		Direction:   openapi.Direction(c.Direction),
		From:        c.From,
		To:          c.To,
		AgentID:     c.AgentID,
		ContactID:   c.ContactID,
		Status:      openapi.CallStatus(c.Status),
		HangupCause: c.HangupCause,
		Timings: openapi.CallTimings{
			QueuedAt:     openapi.TimestampOrNull(c.QueuedAt),
			DialedAt:     openapi.TimestampOrNull(c.DialedAt),
			AnsweredAt:   openapi.TimestampOrNull(c.AnsweredAt),
			EndedAt:      openapi.TimestampOrNull(c.EndedAt),
			RingSeconds:  c.RingSeconds,
			TalkSeconds:  c.TalkSeconds,
			TotalSeconds: c.TotalSeconds,
		},
		Outcome:     c.Outcome,
		Disposition: c.Disposition,
		ExternalRef: c.ExternalRef,
	}
	if c.Credits != nil {
		charged := json.Number(c.Credits.String())
		full.CreditsCharged = &charged
	}
	if c.Summary != nil {
		summary := openapi.CallSummary(c.Summary)
		full.Summary = &summary
	}
	full.Transcript, full.Disclosure = c.Spoken(), c.Disclosure
	return full
}

// Spoken is what was said, as customers see it; nil when there is nothing to show.
func (c *Call) Spoken() *openapi.Transcript {
	if len(c.Transcript) == 0 {
		return nil
	}
	var spoken openapi.Transcript
	if err := json.Unmarshal(c.Transcript, &spoken); err != nil || spoken.Turns == nil {
		return nil // a dialer of another build
	}
	return &spoken
}
