package dialqueue

import (
	"time"

	"github.com/google/uuid"
)

// PauseLevel is the kind of a PauseScope.
type PauseLevel string

// Values of PauseLevel.
const (
	PauseEverything PauseLevel = "everything"
	PauseWorkspace  PauseLevel = "workspace"
	PauseAgent      PauseLevel = "agent"
	PauseTrunk      PauseLevel = "trunk"
)

// PauseScope is what a pause applies to: everything, or the calls of a workspace, an agent or a
// trunk. ID is the zero UUID if the level is PauseEverything.
type PauseScope struct {
	Level PauseLevel `db:"level"`
	ID    uuid.UUID  `db:"id"`
}

// ActorType is the kind of an Actor.
type ActorType string

// Values of ActorType.
const (
	ActorOperator ActorType = "operator"
	ActorAPIKey   ActorType = "api_key"
	ActorUser     ActorType = "user" // a person who is signed in to the console
)

// Actor identifies who paused or resumed dialing. An operator has a name, an API key has an id, and
// a user has a name and an id.
type Actor struct {
	Type ActorType  `db:"actor_type"`
	ID   *uuid.UUID `db:"actor_id"`
	Name string     `db:"actor_name"`
}

// DialingChange pauses or resumes the dialing of a scope. Until is the time at which a pause ends
// by itself. Until is nil if the pause has no end, or if Paused is false.
type DialingChange struct {
	Paused bool
	Reason string
	Until  *time.Time
	Actor  Actor
}

// DialingState contains whether the dialing of a scope is paused, and the last change. SetAt is nil
// if it was never changed. Paused is false after Until.
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
