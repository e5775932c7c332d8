package dialqueue

import (
	"time"

	"github.com/google/uuid"
)

// PauseLevel is the kind of a PauseScope.
type PauseLevel string

// These are the values of PauseLevel.
const (
	PauseEverything PauseLevel = "everything"
	PauseWorkspace  PauseLevel = "workspace"
	PauseAgent      PauseLevel = "agent"
	PauseTrunk      PauseLevel = "trunk"
)

// PauseScope is the part of dialing that a pause stops: everything, or the calls of a workspace, an
// agent or a trunk. ID is the zero UUID if the level is PauseEverything.
type PauseScope struct {
	Level PauseLevel `db:"level"`
	ID    uuid.UUID  `db:"id"`
}

// ActorType is the kind of the actor that changed the state of dialing.
type ActorType string

// These are the values of ActorType.
const (
	ActorOperator ActorType = "operator"
	ActorAPIKey   ActorType = "api_key"
	ActorUser     ActorType = "user" // a person with a session of the console
)

// Actor is who changed the state of dialing. An operator has a name, an API key has an id, and a
// user has both.
type Actor struct {
	Type ActorType  `db:"actor_type"`
	ID   *uuid.UUID `db:"actor_id"`
	Name string     `db:"actor_name"`
}

// DialingChange is a change of the state of dialing. Until is the time at which a pause ends by
// itself. Until is nil if the pause has no end, or if Paused is false.
type DialingChange struct {
	Paused bool
	Reason string
	Until  *time.Time
	Actor  Actor
}

// DialingState is the state of dialing of a scope, and its last change. SetAt is nil if the state
// was never changed. Paused is false if Until has passed.
type DialingState struct {
	PauseScope
	Paused bool       `db:"paused"`
	Reason string     `db:"reason"`
	Until  *time.Time `db:"until"`
	Actor
	SetAt *time.Time `db:"set_at"`
}

// PausedScope is a scope that is paused. WorkspaceID is nil unless the level is PauseWorkspace or
// PauseAgent.
type PausedScope struct {
	DialingState
	WorkspaceID *uuid.UUID `db:"workspace_id"`
}
