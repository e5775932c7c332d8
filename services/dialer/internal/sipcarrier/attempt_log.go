package sipcarrier

import (
	"log/slog"

	"github.com/google/uuid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

func newAttempt(trunk trunks.Trunk, sipCallID string) store.TrunkAttempt {
	return store.TrunkAttempt{ID: uuid.Must(uuid.NewV7()), Trunk: trunk.Name, SIPCallID: sipCallID}
}

func answerTo(e sip.End) store.Answer {
	answer := store.Answer{Status: e.Status, Reason: e.Reason}
	if e.Err != nil {
		answer.Error = e.Err.Error()
	}
	return answer
}

func refusalOf(e sip.End) store.Refusal {
	return store.Refusal{At: e.At, Cause: e.Cause, ByUs: e.ByUs, Answer: answerTo(e)}
}

// logEnd logs the end of an attempt. The log contains the SIP Call-ID, with which the trunk's
// operator can find the call.
func (l *leg) logEnd(e sip.End) {
	direction := "outbound"
	if l.record.Inbound {
		direction = "inbound"
	}
	log := slog.With("call_id", l.callID, "sip_call_id", l.record.Attempt.SIPCallID, "trunk", l.trunk.Name,
		"direction", direction, "from", maskNumber(l.record.From), "to", maskNumber(l.record.To))
	if e.Err != nil {
		log = log.With("error", e.Err)
	}
	log.Info("SIP attempt ended", "sip_status", e.Status, "sip_reason", e.Reason, "cause", string(e.Cause),
		"hung_up_by_us", e.ByUs)
}

// maskNumber hides the middle of a phone number. If the number is withheld, it returns "".
func maskNumber(number string) string {
	if number == "" {
		return ""
	}
	return phone.Number(number).Masked()
}
