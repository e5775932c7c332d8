package consumer

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/store"
)

// onContact starts the erasure of a person's requests and calls. The first step of the erasure runs
// in this transaction. ErasureJob runs the other steps.
func (c *Consumer) onContact(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var event eventv1.ContactEvent
	if err := rec.Decode(&event); err != nil {
		return err
	}
	erased := event.GetErased()
	if erased == nil {
		return kafka.Parkf("contact event %T is newer than this build", event.GetEvent())
	}
	e := store.Erasure{Number: erased.GetPhoneE164(), Erasures: erased.GetErasures()}
	for _, id := range []struct {
		name, text string
		into       *uuid.UUID
	}{{"erasure_id", erased.GetErasureId(), &e.ID}, {"workspace_id", event.GetWorkspaceId(),
		&e.WorkspaceID}, {"contact_id", erased.GetContactId(), &e.ContactID}} {
		var err error
		if *id.into, err = uuid.Parse(id.text); err != nil {
			return kafka.Parkf("read %s: %w", id.name, err)
		}
	}
	if e.Number == "" || e.Erasures < 1 {
		return kafka.Parkf("erasure %s has no number, or is the %dth", e.ID, e.Erasures)
	}
	return c.store.Erase(ctx, tx, e)
}
