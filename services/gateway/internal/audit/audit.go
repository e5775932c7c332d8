// Package audit defines the log of the changes that operators make. It removes secrets from the log
// entries. The owner of a change is the service that owns the changed object and makes the change.
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
	// Done means that the owner has made the change.
	Done Outcome = "done"
	// Unchanged means that the owner accepted the request but changed nothing, because it had
	// already applied an equal request. For example, the reference of a wallet transaction was used
	// before.
	Unchanged Outcome = "unchanged"
	// Unknown means that the gateway received no response, because a process crashed or the owner
	// did not respond.
	Unknown Outcome = "unknown"
)

// Intent records that a change is about to be sent to its owner.
type Intent struct {
	ID       uuid.UUID
	Operator string
	// WorkspaceID is nil if the change belongs to no workspace.
	WorkspaceID *uuid.UUID
	RequestID   uuid.UUID
	Method      string
	// Route is the path template of the route. Path is the path of the request.
	Route  string
	Path   string
	Before json.RawMessage
}

// Entry is one entry of the audit log.
type Entry struct {
	Intent
	// Status is the HTTP status of the response. It is nil if the outcome is unknown.
	Status     *int32
	Outcome    Outcome
	After      json.RawMessage
	OccurredAt time.Time
}

// maxState limits the size of a stored state in bytes. A larger state is not stored.
const maxState = 256 << 10

const redacted = "[redacted]"

// State returns a JSON body for the audit log. The values of secret members are replaced. State
// returns nil if the body is not JSON, or is too large.
func State(body []byte) json.RawMessage {
	if len(bytes.TrimSpace(body)) == 0 || len(body) > maxState {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // json.Number keeps all digits of an amount
	var state any
	if err := decoder.Decode(&state); err != nil {
		return nil
	}
	clean, err := json.Marshal(strip(state))
	if err != nil {
		return nil
	}
	return clean
}

func strip(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if isSecret(name) {
				v[name] = redacted
				continue
			}
			v[name] = strip(member)
		}
	case []any:
		for i := range v {
			v[i] = strip(v[i])
		}
	}
	return value
}

// isSecret reports whether a JSON member could contain a secret. Only the name of the member
// decides. In case of doubt it returns true.
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
