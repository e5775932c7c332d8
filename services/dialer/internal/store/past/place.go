package past

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store"
)

// One that was dialled later is none that was over by then.
const before = `
SELECT c.call_id FROM calls c JOIN fences f USING (call_id)
WHERE c.workspace_id = @workspace_id AND c.to_e164 = @to AND c.direction = 'outbound' AND c.ended_at IS NULL AND c.call_id <> @call
	AND coalesce(c.dialed_at, f.fenced_at) < @dialed_at`

// SettleInPlace settles a fact of a call that lives, where the number is in another call as far as this database knows. That one was over when the told one was dialled, and nobody told how:
// it ends as one whose process is gone, and its end is told.
func (s *Store) SettleInPlace(ctx context.Context, t Told) error {
	if t.live() && t.RequestID != uuid.Nil && t.Call.DialedAt != nil && t.State == request.Dialing {
		rows, err := s.pool.Query(ctx, before, pg.Args{"workspace_id": t.WorkspaceID, "to": t.Call.To, "call": t.Call.ID, "dialed_at": t.Call.DialedAt})
		if err != nil {
			return fmt.Errorf("look for who was called before: %w", err)
		}
		over, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return fmt.Errorf("look for who was called before: %w", err)
		}
		err = store.New(s.pool, uuid.Nil, store.Timing{}).Change(ctx, over, func(calls map[uuid.UUID]*call.Call) {
			for _, c := range calls {
				c.Ending = call.EndingRecovery
				c.End(c.Ending.Unheard(time.Now()))
			}
		})
		if err != nil {
			return fmt.Errorf("end who was called before: %w", err)
		}
	}
	return s.Settle(ctx, []Told{t})
}
