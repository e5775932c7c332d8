package dialqueue

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/eventv1"
)

// DefaultFrom is the caller number of an agent without a number. Only the simulated carrier uses it
// (docs/test-numbers.md).
const DefaultFrom = "+15005550006"

// Limits of a workspace that sets none (docs/reference/api/README.md#rate-limits).
const (
	DefaultCallsPerSecond = 50
	DefaultMaxLiveCalls   = 500
)

// Workspace is the dialer's copy of a workspace from workspaces.v1.
type Workspace struct {
	WorkspaceID    uuid.UUID `db:"workspace_id"`
	Version        int64     `db:"version"`
	Status         string    `db:"status"`
	APIEnabled     bool      `db:"api_enabled"`
	MaxLiveCalls   int32     `db:"max_live_calls"`
	CallsPerSecond int32     `db:"calls_per_second"`
	Destinations   []string  `db:"destinations"`
	// Recordings means that the workspace's calls are recorded. KeepRecordingsDays is the number of
	// days for which recordings are stored. 0 means the configured period of the service. The
	// dial-time check uses neither field.
	Recordings         bool  `db:"-"`
	KeepRecordingsDays int32 `db:"-"`
}

// WorkspaceOf converts the gateway's message. It returns an error if this version of the dialer
// cannot read the message. Missing limits get their defaults.
func WorkspaceOf(event *eventv1.WorkspaceEvent) (Workspace, error) {
	id, err := uuid.Parse(event.GetWorkspaceId())
	if err != nil {
		return Workspace{}, fmt.Errorf("workspace_id: %w", err)
	}
	workspace := event.GetWorkspace()
	if workspace == nil {
		return Workspace{}, errors.New("the workspace event is newer than this build")
	}
	w := Workspace{
		WorkspaceID: id, Version: event.GetVersion(), Status: workspace.GetStatus(), APIEnabled: workspace.GetApiEnabled(),
		MaxLiveCalls: workspace.GetMaxLiveCalls(), CallsPerSecond: workspace.GetCallsPerSecond(),
		Destinations: workspace.GetDestinations(), Recordings: workspace.GetRecordingsEnabled(),
		KeepRecordingsDays: workspace.GetKeepRecordingsDays(),
	}
	if w.MaxLiveCalls <= 0 {
		w.MaxLiveCalls = DefaultMaxLiveCalls
	}
	if w.CallsPerSecond <= 0 {
		w.CallsPerSecond = DefaultCallsPerSecond
	}
	return w, nil
}

// MayDial reports whether the plan permits calls and the workspace is not suspended.
func (w Workspace) MayDial() bool { return w.Status == "active" && w.APIEnabled }

// MayReach reports whether the workspace may call the number.
func (w Workspace) MayReach(to phone.Number) bool {
	return w.MayDial() && to.Forbidden() == "" && (len(w.Destinations) == 0 || to.HasPrefix(w.Destinations))
}

// Agent is the dialer's copy of an AI agent from agents.v1.
type Agent struct {
	AgentID        uuid.UUID `db:"agent_id"`
	WorkspaceID    uuid.UUID `db:"workspace_id"`
	Version        int64     `db:"version"`
	Name           string    `db:"name"`
	FromE164       string    `db:"from_e164"`
	MaxCallSeconds int32     `db:"max_call_seconds"`
	Deleted        bool      `db:"deleted"`
	// Kind, BaseURL and MediaURL are the settings that determine the address of the agent. They are
	// read from Settings and not stored separately.
	Kind     string `db:"kind"`
	BaseURL  string `db:"base_url"`
	MediaURL string `db:"media_url"`
	// Settings is a JSON object. It is stored with the agent, but read separately, because a dial
	// does not need it.
	Settings []byte `db:"-"`
}

// AgentOf converts the message of the calls service. It returns an error if this version of the
// dialer cannot read the message.
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
	if !json.Valid(settings) { // events of early versions have no settings
		settings = []byte("{}")
	}
	return Agent{
		AgentID: id, WorkspaceID: workspaceID, Version: event.GetVersion(), Name: agent.GetName(),
		FromE164: agent.GetFromE164(), MaxCallSeconds: agent.GetMaxCallSeconds(), Deleted: agent.GetDeleted(),
		Settings: settings,
	}, nil
}

// From returns the number that the agent calls from: the agent's from_number, or else the number
// whose inbound calls the agent answers. It is empty if the agent has no such number.
func (a Agent) From(number string) string { return cmp.Or(a.FromE164, number) }

// Number is a number of a workspace. The agent answers its inbound calls.
type Number struct {
	NumberID    uuid.UUID `db:"number_id"`
	WorkspaceID uuid.UUID `db:"workspace_id"`
	PhoneE164   string    `db:"phone_e164"`
	AgentID     uuid.UUID `db:"agent_id"`
}
