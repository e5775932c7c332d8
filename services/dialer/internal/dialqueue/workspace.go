package dialqueue

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/eventv1"
)

// DefaultFrom is the caller number for an agent without a number. Only the simulated carrier uses
// it (docs/test-numbers.md).
const DefaultFrom = "+15005550006"

// The limits of a workspace for which no limits are set (docs/reference/api/README.md#rate-limits).
const (
	DefaultCallsPerSecond = 50
	DefaultMaxLiveCalls   = 500
	// DefaultInboundConcurrent is the limit of concurrent inbound calls.
	DefaultInboundConcurrent = 50
)

// Workspace contains the settings of a workspace, which the dialer reads from workspaces.v1.
type Workspace struct {
	WorkspaceID    uuid.UUID `db:"workspace_id"`
	Version        int64     `db:"version"`
	Status         string    `db:"status"`
	APIEnabled     bool      `db:"api_enabled"`
	MaxLiveCalls   int32     `db:"max_live_calls"`
	CallsPerSecond int32     `db:"calls_per_second"`
	Destinations   []string  `db:"destinations"`
	// Test is true if the calls of the workspace use the simulated carrier.
	Test bool `db:"test"`
	// Recordings is true if the workspace's calls are recorded. KeepRecordingsDays is the number of
	// days for which recordings are kept. If it is 0, the dialer's configured period applies. The
	// dial-time check uses neither field.
	Recordings         bool  `db:"-"`
	KeepRecordingsDays int32 `db:"-"`
	// Inbound contains the price and the limits of inbound calls. It is nil if a gateway of an
	// earlier version published the event. Store methods that read workspaces leave it nil.
	Inbound *Inbound `db:"-"`
}

// Inbound contains the price and the limits of the inbound calls of a workspace.
type Inbound struct {
	PerMinute        money.Micro
	IncrementSeconds int32
	MaxConcurrent    int32
	MaxCallSeconds   int32
}

// DefaultInbound returns the settings of a workspace that has no inbound settings. Its inbound
// calls are free.
func DefaultInbound() Inbound {
	return Inbound{IncrementSeconds: 1, MaxConcurrent: DefaultInboundConcurrent, MaxCallSeconds: 3600}
}

// WorkspaceOf converts the gateway's message to a Workspace. It returns an error if this version of
// the dialer cannot read the message. Limits that are not set get their default values.
func WorkspaceOf(event *eventv1.WorkspaceEvent) (Workspace, error) {
	id, err := uuid.Parse(event.GetWorkspaceId())
	if err != nil {
		return Workspace{}, fmt.Errorf("workspace_id: %w", err)
	}
	workspace := cmp.Or(event.GetWorkspace(), event.GetTestWorkspace())
	if workspace == nil {
		return Workspace{}, errors.New("the workspace event is newer than this build")
	}
	w := Workspace{
		WorkspaceID: id, Version: event.GetVersion(), Status: workspace.GetStatus(), APIEnabled: workspace.GetApiEnabled(),
		MaxLiveCalls: workspace.GetMaxLiveCalls(), CallsPerSecond: workspace.GetCallsPerSecond(),
		Destinations: workspace.GetDestinations(), Recordings: workspace.GetRecordingsEnabled(),
		KeepRecordingsDays: workspace.GetKeepRecordingsDays(), Test: event.GetTestWorkspace() != nil,
	}
	if w.MaxLiveCalls <= 0 {
		w.MaxLiveCalls = DefaultMaxLiveCalls
	}
	if w.CallsPerSecond <= 0 {
		w.CallsPerSecond = DefaultCallsPerSecond
	}
	if inbound := workspace.GetInbound(); inbound != nil {
		w.Inbound = &Inbound{
			PerMinute: money.Micro(inbound.GetPerMinuteMicro()), IncrementSeconds: inbound.GetIncrementSeconds(),
			MaxConcurrent: inbound.GetMaxConcurrent(), MaxCallSeconds: inbound.GetMaxCallSeconds(),
		}
	}
	return w, nil
}

// TestCarrier is the name of the simulated carrier if it serves only test workspaces, because
// another carrier places the calls of live workspaces.
const TestCarrier = "test"

// Modes selects workspaces by their mode: live workspaces, test workspaces, or both. Each carrier
// places the calls of some modes.
type Modes int

// Values of Modes.
const (
	AllModes Modes = iota
	LiveMode
	TestMode
)

// Test returns the value of Workspace.Test that m selects, or nil if m selects both values.
func (m Modes) Test() *bool {
	if m == AllModes {
		return nil
	}
	test := m == TestMode
	return &test
}

// Include reports whether m selects the workspace.
func (m Modes) Include(w Workspace) bool { return m == AllModes || w.Test == (m == TestMode) }

// Suspended reports whether the workspace is suspended. No request of it is dialed.
func (w Workspace) Suspended() bool { return w.Status != "active" }

// MayDial reports whether a request of the workspace may be dialed: the workspace is not suspended,
// and its plan has API access. A request of a person needs no API access.
func (w Workspace) MayDial(byPerson bool) bool { return !w.Suspended() && (w.APIEnabled || byPerson) }

// MayReach reports whether a call of the workspace may be transferred to the number. A workspace
// can be restricted to some prefixes. A transfer needs no API access, because inbound calls and
// calls that people place do not need it.
func (w Workspace) MayReach(to phone.Number) bool {
	return !w.Suspended() && to.Forbidden() == "" && (len(w.Destinations) == 0 || to.HasPrefix(w.Destinations))
}

// Agent contains the settings of an AI agent, which the dialer reads from agents.v1.
type Agent struct {
	AgentID        uuid.UUID `db:"agent_id"`
	WorkspaceID    uuid.UUID `db:"workspace_id"`
	Version        int64     `db:"version"`
	Name           string    `db:"name"`
	FromE164       string    `db:"from_e164"`
	MaxCallSeconds int32     `db:"max_call_seconds"`
	Deleted        bool      `db:"deleted"`
	// Kind, BaseURL and MediaURL determine the address of the agent. They are copies of fields in
	// Settings and are not stored separately.
	Kind     string `db:"kind"`
	BaseURL  string `db:"base_url"`
	MediaURL string `db:"media_url"`
	// Settings is a JSON object with all settings. Store methods that read agents for a dial leave it
	// empty, because a dial does not need it.
	Settings []byte `db:"-"`
}

// AgentOf converts the message of the service `calls` to an Agent. It returns an error if this
// version of the dialer cannot read the message.
func AgentOf(event *eventv1.AgentEvent) (Agent, error) {
	id, err := uuid.Parse(event.GetAgentId())
	if err != nil {
		return Agent{}, fmt.Errorf("agent_id: %w", err)
	}
	workspaceID, err := uuid.Parse(event.GetWorkspaceId())
	if err != nil {
		return Agent{}, fmt.Errorf("workspace_id: %w", err)
	}
	agent := event.GetAgent()
	if agent == nil {
		return Agent{}, errors.New("the agent event is newer than this build")
	}
	settings := agent.GetSettingsJson()
	if !json.Valid(settings) { // early versions of the service `calls` published no settings
		settings = []byte("{}")
	}
	return Agent{
		AgentID: id, WorkspaceID: workspaceID, Version: event.GetVersion(), Name: agent.GetName(),
		FromE164: agent.GetFromE164(), MaxCallSeconds: agent.GetMaxCallSeconds(), Deleted: agent.GetDeleted(),
		Settings: settings,
	}, nil
}

// From returns the number from which the agent calls: its from_number, or else inboundNumber, the
// number whose inbound calls the agent answers. The result is empty if the agent has neither
// number.
func (a Agent) From(inboundNumber string) string { return cmp.Or(a.FromE164, inboundNumber) }

// Number is a phone number of a workspace. An agent answers the inbound calls to this number.
type Number struct {
	NumberID    uuid.UUID `db:"number_id"`
	WorkspaceID uuid.UUID `db:"workspace_id"`
	PhoneE164   string    `db:"phone_e164"`
	AgentID     uuid.UUID `db:"agent_id"`
}
