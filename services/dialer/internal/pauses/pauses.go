// Package pauses contains the pauses of dialing. Dialing can be paused for everything, a workspace,
// an agent or a trunk. While a scope is paused, its requests stay queued and no INVITE is sent.
// Calls that are in progress continue.
package pauses

import (
	"time"

	"github.com/google/uuid"
)

// Level is the kind of a scope.
type Level string

// These are the values of Level.
const (
	Everything Level = "everything"
	Workspace  Level = "workspace"
	Agent      Level = "agent"
	Trunk      Level = "trunk"
)

// Scope is what is paused. ID is the zero UUID if the level is Everything.
type Scope struct {
	Level Level     `db:"level"`
	ID    uuid.UUID `db:"id"`
}

// ActorType is the kind of the actor that changed the state of dialing.
type ActorType string

// These are the values of ActorType.
const (
	Operator ActorType = "operator"
	APIKey   ActorType = "api_key"
)

// Actor is who changed the state of dialing. An operator has a name, and an API key has an id.
type Actor struct {
	Type ActorType  `db:"actor_type"`
	ID   *uuid.UUID `db:"actor_id"`
	Name string     `db:"actor_name"`
}

// Change is a change of the state of dialing. Until is the time at which a pause ends by itself. It
// is nil if the pause has no end, and if Paused is false.
type Change struct {
	Paused bool
	Reason string
	Until  *time.Time
	Actor  Actor
}

// State is the state of dialing of a scope, and its last change. SetAt is nil if it was never
// changed. Paused is false if Until has passed.
type State struct {
	Scope
	Paused bool       `db:"paused"`
	Reason string     `db:"reason"`
	Until  *time.Time `db:"until"`
	Actor
	SetAt *time.Time `db:"set_at"`
}
