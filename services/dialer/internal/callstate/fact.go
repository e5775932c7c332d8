package callstate

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/proto/eventv1"
)

// factNamespace is the UUIDv5 namespace of the ids of facts.
var factNamespace = uuid.MustParse("6f0d3c1e-52a8-4b1c-9a34-0c5de2b7f410")

// Fact is one event of dial-events.v1. If the same fact is built twice, both have the same id, so a
// consumer's inbox applies the fact once.
type Fact struct {
	ID          uuid.UUID
	Key         string
	WorkspaceID uuid.UUID
	Event       *eventv1.DialEvent
}

// New returns a fact of an aggregate, which is a call request or an inbound call. version
// distinguishes facts of one aggregate that have the same name. requestID is uuid.Nil for an
// inbound call.
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
