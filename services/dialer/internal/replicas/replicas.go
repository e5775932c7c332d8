// Package replicas contains the data that dialer processes store about themselves: reports for
// operators, and the monitor of heartbeats. Each process stores its report in the database every
// two seconds, so that any process can return the reports of all processes.
package replicas

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Report contains what one process stores about itself.
type Report struct {
	// Trunks contains the trunks that the process monitors.
	Trunks []Trunk `json:"trunks"`
	// Rejected contains the last inbound calls and connections that the process refused, the newest
	// first.
	Rejected []RejectedCall `json:"rejected_calls"`
	// SIP contains the listening addresses of the process. It is nil if the carrier is simulated.
	SIP *SIP `json:"sip"`
	// AgentCircuits contains the addresses of AI agents to which the process sends no calls now.
	AgentCircuits []AgentCircuit `json:"agent_circuits"`
}

// SIP contains the configured addresses at which a process listens for SIP and audio. An address is
// empty if the process has no such listener.
type SIP struct {
	UDP string `json:"udp"`
	TCP string `json:"tcp"`
	TLS string `json:"tls"`
	// Advertised is the address at which trunks reach the process.
	Advertised string `json:"advertised"`
	// RTP is the local address and the port range for audio.
	RTP string `json:"rtp"`
}

// AgentCircuit is an address of AI agents whose circuit is open, because several attempts in a row
// could not reach the address.
type AgentCircuit struct {
	Kind string `json:"kind"`
	// WorkspaceID is the workspace whose model has this address. It is nil for the operator's model.
	WorkspaceID *uuid.UUID `json:"workspace_id"`
	// OpenUntil is the time from which a call may test the address. It is nil while a call is testing
	// it.
	OpenUntil *time.Time `json:"open_until"`
}

// Reason is the reason why an inbound call or connection was refused.
type Reason string

// Values of Reason.
const (
	// UnknownSource means that the address belongs to no trunk.
	UnknownSource Reason = "unknown_source"
	// UnknownNumber means that the called number is not in the number format of the trunk.
	UnknownNumber Reason = "unknown_number"
	// UnassignedNumber means that the called number is assigned to no agent.
	UnassignedNumber Reason = "unassigned_number"
)

// RejectedCall is an inbound call or connection that was refused. Its phone numbers are masked, and
// its texts are short and printable.
type RejectedCall struct {
	At        time.Time `json:"at"`
	Source    string    `json:"source"`
	Transport string    `json:"transport"`
	From      string    `json:"from"`
	To        string    `json:"to"`
	UserAgent string    `json:"user_agent"`
	Reason    Reason    `json:"reason"`
	// Hint is the name of the setting that an operator can change to permit the call.
	Hint string `json:"hint"`
}

const maxRejectedCalls = 20

// RejectedCalls returns the last 20 calls and connections that any process refused, the newest
// first.
func RejectedCalls(reports []StoredReport) []RejectedCall {
	var all []RejectedCall
	for _, one := range reports {
		all = append(all, one.Report.Rejected...)
	}
	slices.SortStableFunc(all, func(a, b RejectedCall) int { return b.At.Compare(a.At) })
	return all[:min(len(all), maxRejectedCalls)]
}

// State is the state of a trunk.
type State string

// States of a trunk. Mixed and Disabled are states over all processes. The other states are those
// of one process.
const (
	// Unknown means that the trunk has not answered OPTIONS yet.
	Unknown State = "unknown"
	Up      State = "up"
	// Down means that the trunk did not answer two OPTIONS requests in a row.
	Down State = "down"
	// CircuitOpen means that the trunk answers OPTIONS, but gets no calls for a while because several
	// calls failed.
	CircuitOpen State = "circuit_open"
	// Mixed means that the trunk has different states in different processes.
	Mixed State = "mixed"
	// Disabled means that the operator has disabled the trunk.
	Disabled State = "disabled"
)

// Trunk is the state of a trunk in one process.
type Trunk struct {
	TrunkID uuid.UUID `json:"trunk_id"`
	// Version is the version of the trunk's settings that the process uses.
	Version int64 `json:"version"`
	State   State `json:"state"`
	// OpenUntil is the time from which a call may test the trunk. It is nil unless the trunk's circuit
	// is open.
	OpenUntil *time.Time `json:"circuit_open_until"`
	// Registered is true if the process is registered at the trunk. It is nil if the trunk needs no
	// registration.
	Registered      *bool      `json:"registered"`
	RegisteredUntil *time.Time `json:"registered_until"`
	// RegisterError is the error of the last REGISTER, or "" if it succeeded.
	RegisterError string `json:"register_error"`
	// LastAnswer is the trunk's last answer to OPTIONS, or nil if there was none.
	LastAnswer *Answer `json:"last_answer"`
	// OptionsError is the error of the last OPTIONS, or "" if it succeeded.
	OptionsError string `json:"options_error"`
	Recent       Recent `json:"recent"`
}

// Answer is a trunk's answer to OPTIONS.
type Answer struct {
	At              time.Time `json:"at"`
	Status          int       `json:"status"`
	RoundTripMillis int64     `json:"round_trip_ms"`
}

// Recent contains the number of calls that were offered to a trunk in the last five minutes.
// Failures is how many of them failed because of the trunk: it did not respond, or it refused the
// call for a reason other than the callee.
type Recent struct {
	Calls    int `json:"calls"`
	Failures int `json:"failures"`
}

// StoredReport is the stored report of one process.
type StoredReport struct {
	Owner      uuid.UUID
	Name       string
	ReportedAt time.Time
	Report     Report
}

// ReportedTrunk is the state of a trunk in the report of one process.
type ReportedTrunk struct {
	Replica    string
	ReportedAt time.Time
	Trunk      Trunk
}

// OfTrunk returns the reports about one version of a trunk's settings.
func OfTrunk(reports []StoredReport, trunkID uuid.UUID, version int64) []ReportedTrunk {
	var found []ReportedTrunk
	for _, one := range reports {
		for _, t := range one.Report.Trunks {
			if t.TrunkID == trunkID && t.Version == version {
				found = append(found, ReportedTrunk{Replica: one.Name, ReportedAt: one.ReportedAt, Trunk: t})
			}
		}
	}
	return found
}

// Merge combines the reports of several processes about one trunk. The trunk counts as registered
// if all processes that register at it are registered. RegisteredUntil is the earliest end of these
// registrations. The numbers of calls are added.
func Merge(seen []ReportedTrunk) Trunk {
	merged := Trunk{State: Unknown}
	for i, one := range seen {
		t := one.Trunk
		switch {
		case i == 0:
			merged = t
			continue
		case merged.State != t.State:
			merged.State = Mixed
		}
		merged.OpenUntil = earlierTime(merged.OpenUntil, t.OpenUntil)
		merged.RegisteredUntil = earlierTime(merged.RegisteredUntil, t.RegisteredUntil)
		if t.Registered != nil && (merged.Registered == nil || *merged.Registered) {
			merged.Registered = t.Registered
		}
		if merged.LastAnswer == nil || t.LastAnswer != nil && t.LastAnswer.At.After(merged.LastAnswer.At) {
			merged.LastAnswer = t.LastAnswer
		}
		if merged.RegisterError == "" {
			merged.RegisterError = t.RegisterError
		}
		if merged.OptionsError == "" {
			merged.OptionsError = t.OptionsError
		}
		merged.Recent.Calls += t.Recent.Calls
		merged.Recent.Failures += t.Recent.Failures
	}
	return merged
}

// earlierTime returns the earlier of two times. A time that is nil is ignored.
func earlierTime(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}
