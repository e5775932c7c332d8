// Package audit owns what is remembered of an operator's change, and what must not be: secrets.
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
	// Done means that the change was made.
	Done Outcome = "done"
	// Unchanged means that the owner accepted the request and changed nothing, because it had applied the same
	// request before. An example is a wallet transaction whose reference was used.
	Unchanged Outcome = "unchanged"
	// Unknown means that the change was begun and no response was seen: a process crashed, or the owner did not respond.
	Unknown Outcome = "unknown"
)

// Intent is a change that is about to be tried.
type Intent struct {
	ID       uuid.UUID
	Operator string
	// WorkspaceID is nil for what concerns none.
	WorkspaceID *uuid.UUID
	RequestID   uuid.UUID
	Method      string
	// Route is the template, Path what it was for.
	Route  string
	Path   string
	Before json.RawMessage
}

// Entry is one row of the audit: who, what, before, after, when.
type Entry struct {
	Intent
	// Status is nil when the outcome is unknown.
	Status     *int32
	Outcome    Outcome
	After      json.RawMessage
	OccurredAt time.Time
}

// maxState bounds what is kept of a state.
const maxState = 256 << 10

const redacted = "[redacted]"

// State is a JSON body as the audit keeps it: without the values of members that are secret. What is no JSON, or too large, is
// not kept.
func State(body []byte) json.RawMessage {
	if len(bytes.TrimSpace(body)) == 0 || len(body) > maxState {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // amounts stay as they were written
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
			if secret(name) {
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

// secret tells by its name whether a member may hold key material. Too much is better than too little here.
func secret(name string) bool {
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
