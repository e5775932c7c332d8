// Package fact owns the shape of what the dialer tells the world: one record of dial-events.v1, its key and its identity. The
// same fact built twice has the same id, so a reader's inbox takes it once.

package callstate

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/proto/eventv1"
)

// space is the UUIDv5 namespace of dial facts.
var space = uuid.MustParse("6f0d3c1e-52a8-4b1c-9a34-0c5de2b7f410")

// Fact is one record of dial-events.v1.
type Fact struct {
	ID          uuid.UUID
	Key         string
	WorkspaceID uuid.UUID
	Event       *eventv1.DialEvent
}

// New makes the fact of an aggregate (a call request, or an inbound call) named name; version tells it from others of that name.
// requestID is uuid.Nil for an inbound call.
func New(aggregate, requestID, workspaceID uuid.UUID, name string, version int64, at time.Time) Fact {
	event := &eventv1.DialEvent{WorkspaceId: workspaceID.String(), OccurredAt: timestamppb.New(at)}
	if requestID != uuid.Nil {
		event.CallRequestId = requestID.String()
	}
	return Fact{
		ID:          uuid.NewSHA1(space, fmt.Appendf(nil, "%s/%s/%d", aggregate, name, version)),
		Key:         aggregate.String(),
		WorkspaceID: workspaceID,
		Event:       event,
	}
}
