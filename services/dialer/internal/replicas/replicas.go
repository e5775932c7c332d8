// Package replicas contains the data that the dialer processes have about each other: the reports
// that they store for operators, and the monitor of their heartbeats. Each process stores its
// report in the database every two seconds, so that any process can return the reports of all
// processes.
package replicas

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Report is the report of one process about itself.
type Report struct {
	// Trunks contains the trunks that the process monitors.
	Trunks []Trunk `json:"trunks"`
	// Rejected are the last inbound attempts that were refused, newest first.
	Rejected []RejectedCall `json:"strangers"`
	// SIP contains the listening addresses of the process. It is nil with the simulated carrier.
	SIP *SIP `json:"sip"`
	// AgentCircuits are the addresses of AI agents that currently receive no calls.
	AgentCircuits []AgentCircuit `json:"agent_circuits"`
}

// SIP contains the addresses at which a process listens for SIP and audio, as configured. An empty
// address means that the process has no such listener.
type SIP struct {
	UDP string `json:"udp"`
	TCP string `json:"tcp"`
	TLS string `json:"tls"`
	// Advertised is the address at which trunks reach the process.
	Advertised string `json:"advertised"`
	// RTP is the local address and the range of ports for audio.
	RTP string `json:"rtp"`
}

// AgentCircuit is an open circuit: an address of AI agents could not be reached several times in a
// row.
type AgentCircuit struct {
	Kind string `json:"kind"`
	// WorkspaceID is nil for the operator's own model.
	WorkspaceID *uuid.UUID `json:"workspace_id"`
	// OpenUntil is when the next call tests the address. It is nil if a call is testing the address
	// now.
	OpenUntil *time.Time `json:"open_until"`
}

// Reason is the reason why an inbound attempt was refused.
type Reason string

// These are the values of Reason.
const (
	// UnknownSource: the address belongs to no trunk.
	UnknownSource Reason = "unknown_source"
	// UnknownNumber: the called user is not a number in the format of the trunk.
	UnknownNumber Reason = "unknown_number"
	// UnassignedNumber: no agent has the called number.
	UnassignedNumber Reason = "unassigned_number"
)

// RejectedCall is an inbound call or connection that was refused. Numbers are masked. Texts are
// short and printable.
type RejectedCall struct {
	At        time.Time `json:"at"`
	Source    string    `json:"source"`
	Transport string    `json:"transport"`
	From      string    `json:"from"`
	To        string    `json:"to"`
	UserAgent string    `json:"user_agent"`
	Reason    Reason    `json:"reason"`
	// Hint is the name of the setting that would admit the attempt.
	Hint string `json:"hint"`
}

// maxRejectedCalls limits the number of results of RejectedCalls.
const maxRejectedCalls = 20

// RejectedCalls returns the last 20 inbound attempts that any process refused, newest first.
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

// These are the states of a trunk. Mixed and Disabled describe the trunk over all processes, and
// the other states describe the trunk at one process.
const (
	// Unknown: the trunk has not answered OPTIONS yet.
	Unknown State = "unknown"
	Up      State = "up"
	// Down: two OPTIONS requests in a row were not answered.
	Down State = "down"
	// CircuitOpen: the trunk answers OPTIONS, but receives no calls for a while, because several
	// calls failed.
	CircuitOpen State = "circuit_open"
	// Mixed: the states of the trunk at different processes differ.
	Mixed State = "mixed"
	// Disabled: the operator disabled the trunk.
	Disabled State = "disabled"
)

// Trunk is the state of a trunk at one process.
type Trunk struct {
	TrunkID uuid.UUID `json:"trunk_id"`
	// Version is the version of the trunk's settings that the process uses.
	Version int64 `json:"version"`
	State   State `json:"state"`
	// OpenUntil is when the next call tests the trunk. It is nil unless the trunk's circuit is
	// open.
	OpenUntil *time.Time `json:"circuit_open_until"`
	// Registered reports whether the trunk is registered. It is nil for a trunk without
	// registration.
	Registered      *bool      `json:"registered"`
	RegisteredUntil *time.Time `json:"registered_until"`
	// RegisterError is the error of the last REGISTER. It is empty if the last REGISTER succeeded.
	RegisterError string `json:"register_error"`
	// LastAnswer is the last answer to OPTIONS. It is nil if there was no answer.
	LastAnswer *Answer `json:"last_answer"`
	// OptionsError is the error of the last OPTIONS. It is empty if the last OPTIONS succeeded.
	OptionsError string `json:"options_error"`
	Recent       Recent `json:"recent"`
}

// Answer is an answer of a trunk to OPTIONS.
type Answer struct {
	At              time.Time `json:"at"`
	Status          int       `json:"status"`
	RoundTripMillis int64     `json:"round_trip_ms"`
}

// Recent counts the calls that were offered to a trunk in the last five minutes, and how many of
// them failed because of the trunk: no answer, or a refusal that is not about the callee.
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

// OfTrunk returns the reports about one version of a trunk. Reports about an earlier version are
// omitted.
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
// The numbers of calls are added.
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

// earlier returns the earlier of two times. nil counts as later than any time.
func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}
