package sip

import (
	"fmt"
	"strconv"
	"strings"

	"ringfence.dev/services/dialer/internal/callstate"
)

// Final describes how the peer ended a leg before the answer.
type Final struct {
	// Status is the status code of the final response, or 0 if there was none.
	Status int
	// Rang is true if a response from 180 to 199 arrived before the final response.
	Rang bool
	// RetryAfter is true if the response has the header Retry-After.
	RetryAfter bool
	// Reasons contains the Reason headers of the response (RFC 3326).
	Reasons []string
}

// Cause returns the cause of the end of the call. A known Q.850 number in a Reason header
// determines the cause, except 16 and 31 (normal clearing). Otherwise the SIP status determines it.
// The table is in docs/reference/api/calls.md#sip-responses-and-hangup-causes.
func (f Final) Cause() callstate.Cause {
	if number, found := Q850(f.Reasons); found && !isNormalClearing(number) {
		if cause, listed := causeOf(number); listed {
			return cause
		}
	}
	return f.byStatus()
}

// AllowsOtherTrunk reports whether another trunk may be tried: the trunk caused the refusal, and no
// phone rings. If the response concerns the number or the person, another trunk would respond the
// same.
func (f Final) AllowsOtherTrunk() bool {
	if f.Rang {
		return false
	}
	// A 401 or 407 concerns only the trunk's credentials, even if the response has a Reason header.
	if f.Status == 401 || f.Status == 407 {
		return true
	}
	if number, found := Q850(f.Reasons); found && !isNormalClearing(number) {
		if cause, listed := causeOf(number); listed && cause != callstate.NetworkOutOfOrder &&
			cause != callstate.NormalTemporaryFailure && cause != callstate.SwitchCongestion {
			return false
		}
	}
	// 408 and 504 (timeout) are missing here, because the phone can ring.
	switch f.Status {
	case 403, 502, 503:
		return true
	}
	return false
}

func (f Final) byStatus() callstate.Cause {
	switch f.Status {
	case 0, 504:
		return callstate.RecoveryOnTimerExpire
	case 401, 407:
		return callstate.ProviderAuthFailed
	case 403, 603:
		return callstate.CallRejected
	case 404, 604:
		return callstate.UnallocatedNumber
	case 408:
		return callstate.NoUserResponse
	case 410:
		return callstate.NumberChanged
	case 415, 488, 606:
		return callstate.IncompatibleDest
	case 416, 484:
		return callstate.InvalidNumberFormat
	case 480:
		if f.Rang {
			return callstate.NoAnswer
		}
		return callstate.SubscriberAbsent
	case 486, 600:
		return callstate.UserBusy
	case 501:
		return callstate.FacilityRejected
	case 502:
		return callstate.NetworkOutOfOrder
	case 503:
		if f.RetryAfter {
			return callstate.SwitchCongestion
		}
		return callstate.NormalTemporaryFailure
	case 607, 608:
		return callstate.SpamBlocked
	}
	switch f.Status / 100 {
	case 3:
		return callstate.NoRouteDestination
	case 6: // a 6xx is valid for all branches of a forked INVITE (RFC 3261 section 21.6)
		return callstate.CallRejected
	}
	return callstate.NormalTemporaryFailure
}

// ByeCause returns the cause of a call that the peer hung up after the answer. A known Q.850 number
// determines the cause. Without such a number, the cause is normal_clearing.
func ByeCause(reasons []string) callstate.Cause {
	if number, found := Q850(reasons); found && !isNormalClearing(number) {
		if cause, listed := causeOf(number); listed {
			return cause
		}
	}
	return callstate.NormalClearing
}

// isNormalClearing reports whether the Q.850 number is 16 or 31, which report no fault.
func isNormalClearing(number int) bool { return number == 16 || number == 31 }

func causeOf(number int) (callstate.Cause, bool) {
	switch number {
	case 1:
		return callstate.UnallocatedNumber, true
	case 3:
		return callstate.NoRouteDestination, true
	case 16:
		return callstate.NormalClearing, true
	case 17:
		return callstate.UserBusy, true
	case 18:
		return callstate.NoUserResponse, true
	case 19:
		return callstate.NoAnswer, true
	case 20:
		return callstate.SubscriberAbsent, true
	case 21:
		return callstate.CallRejected, true
	case 22:
		return callstate.NumberChanged, true
	case 27:
		return callstate.DestinationOutOfOrder, true
	case 28:
		return callstate.InvalidNumberFormat, true
	case 29:
		return callstate.FacilityRejected, true
	case 38:
		return callstate.NetworkOutOfOrder, true
	case 41:
		return callstate.NormalTemporaryFailure, true
	case 42:
		return callstate.SwitchCongestion, true
	case 88:
		return callstate.IncompatibleDest, true
	case 102:
		return callstate.RecoveryOnTimerExpire, true
	}
	return "", false
}

// Q850Number returns the Q.850 number of a cause. If Q.850 has no such cause, it returns the
// nearest number.
func Q850Number(cause callstate.Cause) int {
	for number := 1; number <= 127; number++ {
		if name, listed := causeOf(number); listed && name == cause {
			return number
		}
	}
	switch cause {
	case callstate.NormalClearing, callstate.OriginatorCancel, callstate.MaxDuration, callstate.SilenceTimeout:
		return 16
	case callstate.ProviderAuthFailed, callstate.SpamBlocked:
		return 21
	case callstate.MediaTimeout:
		return 102
	case callstate.AgentError:
		return 41
	}
	return 31
}

// ReasonHeader returns the Reason header with which this side hangs up.
func ReasonHeader(cause callstate.Cause) string {
	return fmt.Sprintf("Q.850;cause=%d;text=%q", Q850Number(cause), strings.ReplaceAll(string(cause), "_", " "))
}

// StatusOf returns the response with which this side refuses a call because of the cause.
func StatusOf(cause callstate.Cause) (code int, text string) {
	switch cause {
	case callstate.UserBusy:
		return 486, "Busy Here"
	case callstate.UnallocatedNumber, callstate.NoRouteDestination:
		return 404, "Not Found"
	case callstate.NumberChanged:
		return 410, "Gone"
	case callstate.InvalidNumberFormat:
		return 484, "Address Incomplete"
	case callstate.CallRejected, callstate.SpamBlocked, callstate.FacilityRejected, callstate.ProviderAuthFailed:
		return 403, "Forbidden"
	case callstate.IncompatibleDest:
		return 488, "Not Acceptable Here"
	case callstate.SwitchCongestion, callstate.NormalTemporaryFailure, callstate.NetworkOutOfOrder, callstate.AgentError:
		return 503, "Service Unavailable"
	}
	return 480, "Temporarily Unavailable"
}

// Q850 returns the first Q.850 cause in Reason headers. A header can contain several values. found
// is false if no value is between 1 and 127.
func Q850(headers []string) (number int, found bool) {
	for _, header := range headers {
		for _, value := range splitUnquoted(header, ',') {
			parts := splitUnquoted(value, ';')
			if !strings.EqualFold(strings.TrimSpace(parts[0]), "Q.850") {
				continue
			}
			for _, param := range parts[1:] {
				name, text, _ := strings.Cut(param, "=")
				if !strings.EqualFold(strings.TrimSpace(name), "cause") {
					continue
				}
				n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 7)
				if err == nil && n > 0 {
					return int(n), true
				}
			}
		}
	}
	return 0, false
}

// splitUnquoted splits a text at each byte `at` that is not within quotes.
func splitUnquoted(text string, at byte) (parts []string) {
	quoted, begin := false, 0
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case text[i] == at && !quoted:
			parts, begin = append(parts, text[begin:i]), i+1
		}
	}
	return append(parts, text[begin:])
}
