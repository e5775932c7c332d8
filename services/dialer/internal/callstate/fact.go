package callstate

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/proto/eventv1"
)

// factNamespace is the namespace of the UUIDv5 ids of facts.
var factNamespace = uuid.MustParse("6f0d3c1e-52a8-4b1c-9a34-0c5de2b7f410")

// Fact is one event of dial-events.v1. Two facts about the same change have the same id, so that a
// consumer's inbox applies only one of them.
type Fact struct {
	ID          uuid.UUID
	Key         string
	WorkspaceID uuid.UUID
	Event       *eventv1.DialEvent
}

// New returns a fact about a call request or a call (the aggregate). version distinguishes facts of
// the same aggregate that have the same name. requestID is uuid.Nil for an inbound call.
func New(aggregate, requestID, workspaceID uuid.UUID, name string, version int64, at time.Time) Fact {
	event := &eventv1.DialEvent{WorkspaceId: workspaceID.String(), OccurredAt: timestamppb.New(at)}
	if requestID != uuid.Nil {
		event.CallRequestId = requestID.String()
	}
	return Fact{
		ID:          uuid.NewSHA1(factNamespace, fmt.Appendf(nil, "%s/%s/%d", aggregate, name, version)),
		Key:         aggregate.String(),
		WorkspaceID: workspaceID,
		Event:       event,
	}
}
