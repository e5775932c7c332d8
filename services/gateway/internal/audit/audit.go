// Package audit defines the audit log. An entry describes a change, or a read of a transcript or a
// recording. Secrets and personal data of contacts are removed.
package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Outcome is the result of a change.
type Outcome string

const (
	// Done means that the service that owns the object has made the change.
	Done Outcome = "done"
	// Unchanged means that the service accepted the request but changed nothing, because it had
	// already applied an equal request. For example, the reference of a wallet transaction was used
	// before.
	Unchanged Outcome = "unchanged"
	// Unknown means that the gateway received no response, because a process crashed or the service
	// did not respond.
	Unknown Outcome = "unknown"
)

// ActorType is the kind of actor.
type ActorType string

// These are the kinds of actors.
const (
	APIKey   ActorType = "api_key"
	Operator ActorType = "operator" // a person or program with an operator token
	User     ActorType = "user"     // a person with a session of the console
)

// Actor is the API key, the operator or the person that makes a change or reads an object.
type Actor struct {
	Type ActorType `db:"actor_type"`
	// ID is the id of the API key or of the person, or the name of the operator.
	ID string `db:"actor_id"`
	// Name is the actor's name at the time of the entry.
	Name string `db:"actor_name"`
}

// PendingEntry is an audit entry before its outcome is known. Before the gateway sends a change to
// another service, it stores the pending entry in the table audit_intents.
type PendingEntry struct {
	ID uuid.UUID
	// Operator is the name of the operator, or "person:" and the id of a person. It is empty if the
	// actor is an API key.
	Operator string
	Actor
	Object
	// WorkspaceID is nil if the change belongs to no workspace.
	WorkspaceID *uuid.UUID
	RequestID   uuid.UUID
	Method      string
	// Route is the path template of the route. Path is the path of the request.
	Route  string
	Path   string
	Before json.RawMessage
	// Reason is why the actor makes the change or reads the object. It is empty if the actor gave
	// no reason. It is stored as a part of After.
	Reason string `db:"-"`
}

// Entry is one entry of the audit log.
type Entry struct {
	PendingEntry
	// Status is the HTTP status of the response. It is nil if the outcome is unknown.
	Status     *int32
	Outcome    Outcome
	After      json.RawMessage
	OccurredAt time.Time
}

// TakesReason reports whether the entries of an action store a reason from every kind of actor. A
// reason from a person with a session is stored for every change.
func TakesReason(action string) bool {
	switch action {
	case "call.hangup", "workspace.hangup", "opt_out.delete", "contact.erase", "workspace.update",
		"parked_record.replay":
		return true
	}
	return false
}

// MaxState limits the size of a stored state in bytes. A larger state is not stored.
const MaxState = 256 << 10

const redacted = "[redacted]"

// State returns a JSON body for the audit log, without the values of secrets and personal data. A
// list becomes an object with the member "data". State returns nil if the body is not JSON or is
// too large.
func State(objectType string, body []byte) json.RawMessage {
	if len(bytes.TrimSpace(body)) == 0 || len(body) > MaxState {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // json.Number keeps all digits of an amount
	var state any
	if err := decoder.Decode(&state); err != nil {
		return nil
	}
	state = strip(objectType, state)
	if _, isObject := state.(map[string]any); !isObject {
		state = map[string]any{"data": state}
	}
	clean, err := json.Marshal(state)
	if err != nil {
		return nil
	}
	return clean
}

func strip(objectType string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if isSecret(name) || (member != nil && isPersonal(objectType, name)) {
				v[name] = redacted
				continue
			}
			v[name] = strip(objectType, member)
		}
	case []any:
		for i := range v {
			v[i] = strip(objectType, v[i])
		}
	}
	return value
}

// isPersonal reports whether a member of an object contains data that an erasure deletes, or a link
// that must remain secret.
func isPersonal(objectType, name string) bool {
	switch strings.ToLower(name) {
	case "email", "variables", "metadata", "transcript", "summary":
		return true
	case "name":
		return objectType == "contact"
	case "url": // the link of an invitation contains the token
		return strings.HasSuffix(objectType, "invitation") || objectType == "person"
	}
	return false
}

// isSecret reports whether a JSON member could contain a secret. It considers only the name of the
// member. In case of doubt it returns true.
func isSecret(name string) bool {
	name = strings.ToLower(name)
	if name == "key" || strings.HasSuffix(name, "_key") {
		return true
	}
	for _, part := range []string{"secret", "token", "password", "pepper", "credential", "authorization"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}
