package callstate

import (
	"encoding/json"

	"ringfence.dev/libs/page"
	"ringfence.dev/proto/openapi"
)

// View returns the request in the form that the API and the event of the request show.
func (r *Request) View() openapi.CallRequest {
	return openapi.CallRequest{
		ID:           r.ID,
		Status:       openapi.CallRequestStatus(r.Status),
		CallID:       r.CallID,
		To:           r.To,
		AgentID:      r.AgentID,
		ExternalRef:  r.ExternalRef,
		ScheduledFor: openapi.TimestampOf(r.ScheduledFor),
		ErrorCode:    r.ErrorCode,
		ErrorDetail:  r.ErrorDetail,
		DialedAt:     openapi.TimestampOrNull(r.DialedAt),
		CompletedAt:  openapi.TimestampOrNull(r.CompletedAt),
		CreatedAt:    openapi.TimestampOf(page.TimeOf(r.ID)),
		UpdatedAt:    openapi.TimestampOf(r.UpdatedAt),
	}
}

// Full returns the call in the form that GET /v1/calls/{id} and every event show. The transcript is
// omitted if it may not be shown. recording_url is set if the caller set RecordingURL.
func (c *Call) Full() openapi.Call {
	full := openapi.Call{
		CallID:        c.ID,
		CallRequestID: c.CallRequestID,
		Direction:     openapi.Direction(c.Direction),
		From:          c.From,
		To:            c.To,
		AgentID:       c.AgentID,
		ContactID:     c.ContactID,
		Status:        openapi.CallStatus(c.Status),
		HangupCause:   c.HangupCause,
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
	if c.RecordingURL != "" {
		full.RecordingURL = &c.RecordingURL
	}
	full.Transcript, full.Disclosure = c.PublicTranscript(), c.Disclosure
	return full
}

// PublicTranscript returns the transcript as customers see it. It returns nil if there is no
// transcript to show.
func (c *Call) PublicTranscript() *openapi.Transcript {
	if len(c.Transcript) == 0 {
		return nil
	}
	var transcript openapi.Transcript
	if err := json.Unmarshal(c.Transcript, &transcript); err != nil || transcript.Turns == nil {
		return nil // a dialer of another version wrote a transcript that this build cannot read
	}
	return &transcript
}
