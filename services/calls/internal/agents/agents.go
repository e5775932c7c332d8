// Package agents validates the settings of AI agents. It stores unknown settings unchanged. The
// dialer runs the conversations.
package agents

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/aimodel"
	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/eventv1"
)

// These constants limit the fields of agents, in seconds, characters or bytes
// (docs/reference/api/README.md#field-sizes).
const (
	DefaultMaxCallSeconds = 600
	maxMaxCallSeconds     = 14400
	// maxSessionSeconds limits max_call_seconds of agents that use a model session. The dialer ends
	// such a call after 55 minutes, because a session with a model ends after an hour.
	maxSessionSeconds = 3300
	// maxLiveSessionSeconds limits max_call_seconds of openai_live agents, whose session ends after
	// two hours.
	maxLiveSessionSeconds = 6900
	maxName               = 200
	// maxSettings is the maximum size of all settings of an agent in bytes. It is limited because
	// one Kafka record contains all settings.
	maxSettings = 256 << 10
)

// Agent is one AI agent of a workspace.
type Agent struct {
	ID             uuid.UUID `db:"id"`
	WorkspaceID    uuid.UUID `db:"workspace_id"`
	Version        int64     `db:"version"`
	Name           string    `db:"name"`
	From           *string   `db:"from_e164"`
	MaxCallSeconds int32     `db:"max_call_seconds"`
	// Settings is a JSON object with all settings that have no separate field.
	Settings  []byte     `db:"settings"`
	UpdatedAt time.Time  `db:"updated_at"`
	DeletedAt *time.Time `db:"deleted_at"`
}

// New returns an agent with the settings in body. The member name of body is required.
func New(id, workspaceID uuid.UUID, body map[string]json.RawMessage) (Agent, error) {
	a := Agent{ID: id, WorkspaceID: workspaceID, Version: 1, MaxCallSeconds: DefaultMaxCallSeconds, Settings: []byte("{}")}
	if _, given := body["name"]; !given {
		return Agent{}, apierr.Validation("name", "is missing; name the agent.")
	}
	return a, a.set(body)
}

// Change merges body into the agent and increases the agent's version. A setting that is null in
// body gets its default value.
func (a *Agent) Change(body map[string]json.RawMessage) error {
	if err := a.set(body); err != nil {
		return err
	}
	a.Version++
	return nil
}

// Delete marks the agent as deleted and increases the agent's version. The dialer then dials no
// more requests of this agent.
func (a *Agent) Delete(at time.Time) {
	a.DeletedAt = &at
	a.Version++
}

func (a *Agent) set(body map[string]json.RawMessage) error {
	settings := map[string]json.RawMessage{}
	if err := json.Unmarshal(a.Settings, &settings); err != nil {
		return fmt.Errorf("read settings of agent %s: %w", a.ID, err)
	}
	rest := maps.Clone(body)
	for _, readOnly := range []string{"id", "created_at", "updated_at", "retiring_models"} {
		delete(rest, readOnly) // a client can send back the agent that it read, so read-only fields are ignored
	}
	for _, setting := range []struct {
		field string
		set   func(json.RawMessage) error
	}{{"name", a.setName}, {"from_number", a.setFrom}, {"max_call_seconds", a.setMaxCallSeconds}} {
		raw, given := rest[setting.field]
		if !given {
			continue
		}
		delete(rest, setting.field)
		if err := setting.set(raw); err != nil {
			return err
		}
	}
	for field, raw := range rest {
		if isNull(raw) {
			delete(settings, field)
			continue
		}
		settings[field] = raw
	}
	read, err := parseKnownSettings(settings)
	if err != nil {
		return err
	}
	if err := a.checkSessionLength(body, read.Kind); err != nil {
		return err
	}
	encoded, err := json.Marshal(settings)
	if err != nil {
		return fmt.Errorf("encode settings of agent %s: %w", a.ID, err)
	}
	if len(encoded) > maxSettings {
		return apierr.Validation("body", "would make the agent's settings larger than %d KiB.", maxSettings>>10)
	}
	a.Settings = encoded
	return nil
}

// checkSessionLength rejects a max_call_seconds that is longer than the model's session. Otherwise
// billing-wallet would reserve the price of a call length that is not possible. A body without
// max_call_seconds and kind is accepted, so that older agents can still be changed.
func (a *Agent) checkSessionLength(body map[string]json.RawMessage, kind string) error {
	_, length := body["max_call_seconds"]
	_, changed := body["kind"]
	longest := int32(maxSessionSeconds)
	if kind == "openai_live" {
		longest = maxLiveSessionSeconds
	}
	if kind == "" || kind == "scripted" || a.MaxCallSeconds <= longest || !length && !changed {
		return nil
	}
	return apierr.Validation("max_call_seconds",
		"must be at most %d for an agent of kind %s: its session ends after that time. Send a max_call_seconds of at "+
			"most %d with the kind.",
		longest, kind, longest)
}

func (a *Agent) setName(raw json.RawMessage) error {
	var name *string
	if json.Unmarshal(raw, &name) != nil || name == nil {
		return apierr.Validation("name", "must be a string.")
	}
	if strings.TrimSpace(*name) == "" || utf8.RuneCountInString(*name) > maxName || strings.ContainsRune(*name, 0) {
		return apierr.Validation("name", "must have 1 to %d characters.", maxName)
	}
	a.Name = *name
	return nil
}

func (a *Agent) setFrom(raw json.RawMessage) error {
	var from *string
	if json.Unmarshal(raw, &from) != nil {
		return apierr.Validation("from_number", "must be a string such as +15005550006, or null.")
	}
	if from != nil {
		if _, ok := phone.Parse(*from); !ok {
			return apierr.Validation("from_number", "must be an E.164 number such as +15005550006.")
		}
	}
	a.From = from
	return nil
}

func (a *Agent) setMaxCallSeconds(raw json.RawMessage) error {
	var seconds *int32
	if json.Unmarshal(raw, &seconds) != nil || (seconds != nil && (*seconds < 1 || *seconds > maxMaxCallSeconds)) {
		return apierr.Validation("max_call_seconds", "must be a whole number from 1 to %d.", maxMaxCallSeconds)
	}
	a.MaxCallSeconds = DefaultMaxCallSeconds
	if seconds != nil {
		a.MaxCallSeconds = *seconds
	}
	return nil
}

// RetiringModels returns the announced retirements of the models in the agent's settings. Models
// from the dialer's configuration are not included.
func (a *Agent) RetiringModels() []aimodel.Retirement {
	var named struct {
		Model   string       `json:"model"`
		Summary summaryModel `json:"summary"`
	}
	_ = json.Unmarshal(a.Settings, &named) // the error is ignored, because a setting of the wrong type names no model
	var found []aimodel.Retirement
	for _, model := range []string{named.Model, named.Summary.Model} {
		if retirement, known := aimodel.RetirementOf(model); known {
			found = append(found, retirement)
		}
	}
	return found
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// Event returns the message for agents.v1. The message contains the whole agent and its version.
func (a *Agent) Event(at time.Time) (*eventv1.AgentEvent, error) {
	settings := map[string]json.RawMessage{}
	if err := json.Unmarshal(a.Settings, &settings); err != nil {
		return nil, fmt.Errorf("read settings of agent %s: %w", a.ID, err)
	}
	s, err := parseKnownSettings(settings)
	if err != nil {
		return nil, fmt.Errorf("read settings of agent %s: %w", a.ID, err)
	}
	agent := &eventv1.Agent{
		Name: a.Name, MaxCallSeconds: a.MaxCallSeconds, Instructions: s.Instructions, Voice: s.Voice,
		Outcomes: s.Outcomes, Deleted: a.DeletedAt != nil, SettingsJson: a.Settings,
	}
	if a.From != nil {
		agent.FromE164 = *a.From
	}
	return &eventv1.AgentEvent{
		AgentId: a.ID.String(), WorkspaceId: a.WorkspaceID.String(), Version: a.Version, OccurredAt: timestamppb.New(at),
		Event: &eventv1.AgentEvent_Agent{Agent: agent},
	}, nil
}
