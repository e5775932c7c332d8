// Package tenant owns the dialer's copies of what others decide: workspaces and agents, as workspaces.v1 and
// agents.v1 tell them, and the numbers that the dialer itself owns.
package tenant

import (
	"github.com/google/uuid"

	"ringfence.dev/libs/phone"
)

// DefaultFrom is the caller id of an agent that has no number (contract.md §8).
const DefaultFrom = "+15005550006"

// Limits unless the workspace sets its own (contract.md §6).
const (
	DefaultCallsPerSecond = 50
	DefaultMaxLiveCalls   = 500
)

// Workspace is one tenant as far as dialling goes.
type Workspace struct {
	WorkspaceID    uuid.UUID `db:"workspace_id"`
	Version        int64     `db:"version"`
	Status         string    `db:"status"`
	APIEnabled     bool      `db:"api_enabled"`
	MaxLiveCalls   int32     `db:"max_live_calls"`
	CallsPerSecond int32     `db:"calls_per_second"`
	Destinations   []string  `db:"destinations"`
	// Recordings: its calls are recorded. KeepRecordingsDays is for how long; 0: as long as the service is set to. A dial needs neither.
	Recordings         bool  `db:"-"`
	KeepRecordingsDays int32 `db:"-"`
}

// MayDial says whether the plan allows calls and the workspace is not suspended.
func (w Workspace) MayDial() bool { return w.Status == "active" && w.APIEnabled }

// MayReach says whether the workspace may have a number called: one that is dialled at all, among its destinations.
func (w Workspace) MayReach(to phone.Number) bool {
	return w.MayDial() && to.Forbidden() == "" && (len(w.Destinations) == 0 || to.HasPrefix(w.Destinations))
}

// Agent is who holds the conversation.
type Agent struct {
	AgentID        uuid.UUID `db:"agent_id"`
	WorkspaceID    uuid.UUID `db:"workspace_id"`
	Version        int64     `db:"version"`
	Name           string    `db:"name"`
	FromE164       string    `db:"from_e164"`
	MaxCallSeconds int32     `db:"max_call_seconds"`
	Deleted        bool      `db:"deleted"`
	// Settings is a JSON object, written with the agent and read apart from it: a dial needs none of it.
	Settings []byte `db:"-"`
}

// From is the caller id: the agent's own number, else one of those that reach it, else the default.
func (a Agent) From(number string) string {
	switch {
	case a.FromE164 != "":
		return a.FromE164
	case number != "":
		return number
	}
	return DefaultFrom
}

// Number is one of ours: inbound calls to it reach the agent.
type Number struct {
	NumberID    uuid.UUID `db:"number_id"`
	WorkspaceID uuid.UUID `db:"workspace_id"`
	PhoneE164   string    `db:"phone_e164"`
	AgentID     uuid.UUID `db:"agent_id"`
}
