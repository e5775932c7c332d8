package callstate

import "ringfence.dev/services/dialer/internal/agent"

// Cause is a hangup cause (docs/reference/api/calls.md#hangup-causes). A cause that is not defined
// here is treated as a failure of the carrier.
type Cause string

// Causes that the code uses.
const (
	NormalClearing         Cause = "normal_clearing"
	UserBusy               Cause = "user_busy"
	NoUserResponse         Cause = "no_user_response"
	NoAnswer               Cause = "no_answer"
	SubscriberAbsent       Cause = "subscriber_absent"
	CallRejected           Cause = "call_rejected"
	NumberChanged          Cause = "number_changed"
	InvalidNumberFormat    Cause = "invalid_number_format"
	FacilityRejected       Cause = "facility_rejected"
	UnallocatedNumber      Cause = "unallocated_number"
	NoRouteDestination     Cause = "no_route_destination"
	NetworkOutOfOrder      Cause = "network_out_of_order"
	RecoveryOnTimerExpire  Cause = "recovery_on_timer_expire"
	IncompatibleDest       Cause = "incompatible_destination"
	OriginatorCancel       Cause = "originator_cancel"
	ProviderAuthFailed     Cause = "provider_auth_failed"
	SpamBlocked            Cause = "spam_blocked"
	DestinationOutOfOrder  Cause = "destination_out_of_order"
	MediaTimeout           Cause = "media_timeout"
	MaxDuration            Cause = "max_duration"
	SilenceTimeout         Cause = "silence_timeout"
	AgentError             Cause = "agent_error"
	Unspecified            Cause = "unspecified"
	NormalTemporaryFailure Cause = "normal_temporary_failure"
	SwitchCongestion       Cause = "switch_congestion"
)

// Error codes of a call request whose call failed.
const (
	CodeInvalidNumber       = "invalid_number"
	CodeProviderRejected    = "provider_rejected"
	CodeProviderUnavailable = "provider_unavailable"
	CodeAgentUnavailable    = "agent_unavailable"
	CodeDialStateUnknown    = "dial_state_unknown"
	CodeInternal            = "internal_error"
)

// OfTrunk reports whether a refusal with this cause means that the trunk has a fault, which would
// affect every call.
func (c Cause) OfTrunk() bool {
	switch c {
	case NetworkOutOfOrder,
		SwitchCongestion,
		NormalTemporaryFailure,
		RecoveryOnTimerExpire,
		ProviderAuthFailed,
		Unspecified:
		return true
	}
	return false
}

// Conversed reports whether this cause is possible only for answered calls.
func (c Cause) Conversed() bool {
	switch c {
	case NormalClearing, MaxDuration, SilenceTimeout:
		return true
	}
	return false
}

func (c Cause) status(answered bool) Status {
	if answered && c.Conversed() {
		return Completed
	}
	if answered {
		return Failed
	}
	switch c {
	case UserBusy:
		return Busy
	case NoUserResponse, NoAnswer, SubscriberAbsent:
		return Unanswered
	case OriginatorCancel:
		return Canceled
	}
	return Failed
}

// accountRefused is the error detail of a call that a trunk refused because of the operator's
// account, or probably because of it.
const accountRefused = "The operator's trunk did not accept the call from the operator's account; " +
	"the callee had no part in it. Ask your operator to check the trunk, then ask for the call again."

// errorCode returns the error code of a failed call. detail says what the customer can do.
func (c Cause) errorCode() (errorCode, detail string) {
	switch c {
	case NoRouteDestination:
		return CodeInvalidNumber, "The operator's trunk redirected the call or has no route to the number; " +
			"neither means that the number does not exist. Check the number, or ask your operator to check the trunk."
	case UnallocatedNumber, InvalidNumberFormat, NumberChanged:
		return CodeInvalidNumber, "The number does not exist or cannot be reached; check it before asking for another call."
	case ProviderAuthFailed:
		return CodeProviderRejected, accountRefused
	case CallRejected, FacilityRejected, IncompatibleDest, SpamBlocked:
		return CodeProviderRejected, "The carrier or the callee's network rejected the call; ask for it again later or " +
			"from another number."
	case OriginatorCancel:
		return CodeProviderUnavailable, "The service canceled the call before it was answered; ask for it again."
	case AgentError:
		return CodeAgentUnavailable, "The agent failed during the call, which is not charged; ask for the call again."
	case Unspecified:
		return CodeInternal, "The call failed for a reason of ours; ask for it again."
	}
	return CodeProviderUnavailable, "The carrier could not complete the call; ask for it again later."
}

// disposition returns the disposition of a call that is not completed. The disposition of a
// completed call depends on the conversation.
func (c Cause) disposition(status Status) string {
	switch status {
	case Busy:
		return "busy"
	case Canceled:
		return agent.ReachedAbandoned
	case Unanswered:
		if c == SubscriberAbsent {
			return "unreachable"
		}
		return "no_answer"
	}
	switch c {
	case UnallocatedNumber, InvalidNumberFormat, NumberChanged:
		return "invalid_number"
	case CallRejected, SpamBlocked:
		return "rejected"
	case AgentError, Unspecified, MaxDuration:
		return "error"
	}
	return "unreachable"
}
