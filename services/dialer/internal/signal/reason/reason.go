// Package reason owns what the words of SIP mean for a call: the table of contract.md §2 from a final response, or a BYE, to a cause, and the Reason header
// (RFC 3326) whose Q.850 number may overrule it. It is pure: what was heard is told to it.
package reason

import (
	"fmt"
	"strconv"
	"strings"

	"ringfence.dev/services/dialer/internal/call"
)

// Final is how the far end ended a leg that it had not answered.
type Final struct {
	// Status is the final response; 0 is silence.
	Status int
	// Rang says that an 18x came before.
	Rang bool
	// RetryAfter says that the response has that header.
	RetryAfter bool
	// Reasons are its Reason headers.
	Reasons []string
}

// Cause is the cause with which the call ends. A Q.850 number that has a name in contract.md wins over the status, but for 16 and 31 (normal): before an answer
// they say only that somebody ended it, and the status says why.
func (f Final) Cause() call.Cause {
	if number, told := Q850(f.Reasons); told && !normal(number) {
		if cause, listed := named(number); listed {
			return cause
		}
	}
	return f.byStatus()
}

// Elsewhere says that the trunk could not carry the call for reasons of its own, and that no phone rings: another trunk may. Whatever is said of the number, of the person or of the
// call is said for all trunks; a timeout says nothing of the phone. A 401 or 407 is about our credentials, whatever
// its Reason header says.
func (f Final) Elsewhere() bool {
	if f.Rang {
		return false
	}
	if f.Status == 401 || f.Status == 407 {
		return true
	}
	if number, told := Q850(f.Reasons); told && !normal(number) {
		if cause, listed := named(number); listed && cause != call.NetworkOutOfOrder && cause != call.NormalTemporaryFailure && cause != call.SwitchCongestion {
			return false
		}
	}
	switch f.Status {
	case 403, 502, 503:
		return true
	}
	return false
}

func (f Final) byStatus() call.Cause {
	switch f.Status {
	case 0, 504:
		return call.RecoveryOnTimerExpire
	case 401, 407:
		return call.ProviderAuthFailed
	case 403, 603:
		return call.CallRejected
	case 404, 604:
		return call.UnallocatedNumber
	case 408:
		return call.NoUserResponse
	case 410:
		return call.NumberChanged
	case 415, 488, 606:
		return call.IncompatibleDest
	case 416, 484:
		return call.InvalidNumberFormat
	case 480:
		if f.Rang {
			return call.NoAnswer
		}
		return call.SubscriberAbsent
	case 486, 600:
		return call.UserBusy
	case 501:
		return call.FacilityRejected
	case 502:
		return call.NetworkOutOfOrder
	case 503:
		if f.RetryAfter {
			return call.SwitchCongestion
		}
		return call.NormalTemporaryFailure
	case 607, 608:
		return call.SpamBlocked
	}
	switch f.Status / 100 {
	case 3:
		return call.NoRouteDestination
	case 6: // a definite no for every branch (RFC 3261 21.6)
		return call.CallRejected
	}
	return call.NormalTemporaryFailure
}

// Bye is the cause of a call that the far end hung up after the answer: its Q.850 number when that has a name in contract.md, else normal_clearing.
func Bye(reasons []string) call.Cause {
	if number, told := Q850(reasons); told && !normal(number) {
		if cause, listed := named(number); listed {
			return cause
		}
	}
	return call.NormalClearing
}

// normal is a clearing that names no fault.
func normal(number int) bool { return number == 16 || number == 31 }

// named is the name in contract.md §2 of a Q.850 number.
func named(number int) (call.Cause, bool) {
	switch number {
	case 1:
		return call.UnallocatedNumber, true
	case 3:
		return call.NoRouteDestination, true
	case 16:
		return call.NormalClearing, true
	case 17:
		return call.UserBusy, true
	case 18:
		return call.NoUserResponse, true
	case 19:
		return call.NoAnswer, true
	case 20:
		return call.SubscriberAbsent, true
	case 21:
		return call.CallRejected, true
	case 22:
		return call.NumberChanged, true
	case 27:
		return call.DestinationOutOfOrder, true
	case 28:
		return call.InvalidNumberFormat, true
	case 29:
		return call.FacilityRejected, true
	case 38:
		return call.NetworkOutOfOrder, true
	case 41:
		return call.NormalTemporaryFailure, true
	case 42:
		return call.SwitchCongestion, true
	case 88:
		return call.IncompatibleDest, true
	case 102:
		return call.RecoveryOnTimerExpire, true
	}
	return "", false
}

// Number is the Q.850 number with which we tell a cause; names of our own are told as what they mean to a carrier.
func Number(cause call.Cause) int {
	for number := 1; number <= 127; number++ {
		if name, listed := named(number); listed && name == cause {
			return number
		}
	}
	switch cause {
	case call.NormalClearing, call.OriginatorCancel, call.MaxDuration, call.SilenceTimeout:
		return 16
	case call.ProviderAuthFailed, call.SpamBlocked:
		return 21
	case call.MediaTimeout:
		return 102
	case call.AgentError:
		return 41
	}
	return 31
}

// Header is the Reason header with which we hang up.
func Header(cause call.Cause) string {
	return fmt.Sprintf("Q.850;cause=%d;text=%q", Number(cause), strings.ReplaceAll(string(cause), "_", " "))
}

// Status is the response with which we refuse a call for a cause.
func Status(cause call.Cause) (code int, text string) {
	switch cause {
	case call.UserBusy:
		return 486, "Busy Here"
	case call.UnallocatedNumber, call.NoRouteDestination:
		return 404, "Not Found"
	case call.NumberChanged:
		return 410, "Gone"
	case call.InvalidNumberFormat:
		return 484, "Address Incomplete"
	case call.CallRejected, call.SpamBlocked, call.FacilityRejected, call.ProviderAuthFailed:
		return 403, "Forbidden"
	case call.IncompatibleDest:
		return 488, "Not Acceptable Here"
	case call.SwitchCongestion, call.NormalTemporaryFailure, call.NetworkOutOfOrder, call.AgentError:
		return 503, "Service Unavailable"
	}
	return 480, "Temporarily Unavailable"
}

// Q850 is the first Q.850 cause in Reason headers, each of which may hold several values; false when there is none between 1 and 127.
func Q850(headers []string) (number int, told bool) {
	for _, header := range headers {
		for _, value := range split(header, ',') {
			parts := split(value, ';')
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

// split cuts at a byte that stands outside of quotes.
func split(text string, at byte) (parts []string) {
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
