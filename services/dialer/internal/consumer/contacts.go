package consumer

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/store"
)

// onContact starts the erasure of a person's inbound calls. The outbound calls are erased by the
// events `erased` of call-requests.v1, one for each request.
func (c *Consumer) onContact(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var event eventv1.ContactEvent
	if err := rec.Decode(&event); err != nil {
		return err
	}
	erased := event.GetErased()
	if erased == nil {
		return kafka.Parkf("contact event %T is newer than this build", event.GetEvent())
	}
	of, err := newErasure(erased.GetErasureId(), event.GetWorkspaceId())
	if err != nil {
		return err
	}
	number, ok := phone.Parse(erased.GetPhoneE164())
	if !ok {
		return kafka.Parkf("phone_e164 is no number")
	}
	return c.store.OrderErasure(ctx, tx, string(number), of)
}

func newErasure(id, workspaceID string) (e store.Erasure, err error) {
	if e.ID, err = uuid.Parse(id); err != nil {
		return e, kafka.Parkf("erasure_id: %v", err)
	}
	if e.WorkspaceID, err = uuid.Parse(workspaceID); err != nil {
		return e, kafka.Parkf("workspace_id: %v", err)
	}
	return e, nil
}
