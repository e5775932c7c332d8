// Package replicas has what the dialer processes know of each other: the reports about themselves
// that they store for operators, and the monitor of their heartbeats. Each process stores its
// report in the database every two seconds, so that any process can answer for all of them.

package replicas

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Report is what one process reports.
type Report struct {
	// Trunks has the trunks that the process monitors.
	Trunks []Trunk `json:"trunks"`
	// Rejected are the last inbound attempts that were refused, newest first.
	Rejected []RejectedCall `json:"strangers"`
	// SIP has the listening addresses of the process; nil with the simulated carrier.
	SIP *SIP `json:"sip"`
	// AgentCircuits are the addresses of AI agents that receive no calls for now.
	AgentCircuits []AgentCircuit `json:"agent_circuits"`
}

// SIP has the addresses at which a process listens for SIP and audio, as configured. It does not
// listen at an empty address.
type SIP struct {
	UDP string `json:"udp"`
	TCP string `json:"tcp"`
	TLS string `json:"tls"`
	// Advertised is the address at which trunks reach the process.
	Advertised string `json:"advertised"`
	// RTP is the local address and the range of ports for audio.
	RTP string `json:"rtp"`
}

// AgentCircuit is an open circuit: an address of AI agents could not be reached several times in a row.
type AgentCircuit struct {
	Kind string `json:"kind"`
	// WorkspaceID is nil for the operator's own model.
	WorkspaceID *uuid.UUID `json:"workspace_id"`
	// OpenUntil is when the next call tests the address; nil: a call tests it now.
	OpenUntil *time.Time `json:"open_until"`
}

// Reason is why an inbound attempt was refused.
type Reason string

// Values of Reason.
const (
	// UnknownSource: the address belongs to no trunk.
	UnknownSource Reason = "unknown_source"
	// UnknownNumber: the called user is not a number in the format of the trunk.
	UnknownNumber Reason = "unknown_number"
	// UnassignedNumber: no agent has the called number.
	UnassignedNumber Reason = "unassigned_number"
)

// RejectedCall is an inbound call or connection that was refused. Numbers are masked, and texts are
// short and printable.
type RejectedCall struct {
	At        time.Time `json:"at"`
	Source    string    `json:"source"`
	Transport string    `json:"transport"`
	From      string    `json:"from"`
	To        string    `json:"to"`
	UserAgent string    `json:"user_agent"`
	Reason    Reason    `json:"reason"`
	// Hint is the setting that would admit the attempt.
	Hint string `json:"hint"`
}

// maxRejectedCalls limits the result of RejectedCalls.
const maxRejectedCalls = 20

// RejectedCalls returns the last 20 inbound attempts that were refused at any process, newest
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

// States of a trunk as one process sees it, and for Mixed and Disabled as all processes together see it.
const (
	// Unknown: the trunk has not answered OPTIONS yet.
	Unknown State = "unknown"
	Up      State = "up"
	// Down: two OPTIONS in a row were not answered.
	Down State = "down"
	// CircuitOpen: the trunk answers OPTIONS. It receives no calls for a while, because it failed several.
	CircuitOpen State = "circuit_open"
	// Mixed: the processes see different states.
	Mixed State = "mixed"
	// Disabled: the operator disabled the trunk.
	Disabled State = "disabled"
)

// Trunk is a trunk as one process sees it.
type Trunk struct {
	TrunkID uuid.UUID `json:"trunk_id"`
	// Version is the version of the trunk's settings that the process uses.
	Version int64 `json:"version"`
	State   State `json:"state"`
	// OpenUntil is when the next call tests the trunk; nil unless its circuit is open.
	OpenUntil *time.Time `json:"circuit_open_until"`
	// Registered is nil for a trunk without registration.
	Registered      *bool      `json:"registered"`
	RegisteredUntil *time.Time `json:"registered_until"`
	// RegisterError is why the last REGISTER failed; empty if it did not.
	RegisterError string `json:"register_error"`
	// LastAnswer is the last answer to OPTIONS; nil: there was none.
	LastAnswer *Answer `json:"last_answer"`
	// OptionsError is why the last OPTIONS failed; empty if it did not.
	OptionsError string `json:"options_error"`
	Recent       Recent `json:"recent"`
}

// Answer is an answer of a trunk to OPTIONS.
type Answer struct {
	At              time.Time `json:"at"`
	Status          int       `json:"status"`
	RoundTripMillis int64     `json:"round_trip_ms"`
}

// Recent counts the calls that were offered to a trunk in the last five minutes, and those that failed because of the
// trunk: no answer, or a refusal that is not about the callee.
type Recent struct {
	Calls    int `json:"calls"`
	Failures int `json:"failures"`
}

// StoredReport is the report of one process as it is stored.
type StoredReport struct {
	Owner      uuid.UUID
	Name       string
	ReportedAt time.Time
	Report     Report
}

// ReportedTrunk is a trunk as one process reported it.
type ReportedTrunk struct {
	Replica    string
	ReportedAt time.Time
	Trunk      Trunk
}

// OfTrunk returns what the reports say of one version of a trunk. Reports about an earlier version are left out.
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

// Merge combines the reports of several processes about one trunk. The trunk is registered if it is
// registered at every process that registers there, until the first of these registrations ends.
// Calls are added.
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
		merged.OpenUntil = earlier(merged.OpenUntil, t.OpenUntil)
		merged.RegisteredUntil = earlier(merged.RegisteredUntil, t.RegisteredUntil)
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

// earlier returns the earlier of two times; nil is later than any time.
func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}
