package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/agent"
)

// The previous release stored events in sip_news, and one of its replicas applied them to the
// calls. When its last replica is gone, rows can be left that none has applied. This file and
// sip_news, sip_feed and the feed "sip" are to be removed with the next release.

// A replica of the previous release renews reader_until while it reads. If reader_until is more
// than a minute old, no such replica is running, and the query returns calls with unread events.
const unreadCalls = `
SELECT call_id FROM sip_news
WHERE seq > coalesce((SELECT cursor FROM feeds WHERE trunk = 'sip'), 0)
	AND NOT EXISTS (SELECT 1 FROM feeds WHERE trunk = 'sip' AND reader_until > now() - interval '1 minute')
GROUP BY call_id ORDER BY min(seq) LIMIT 100`

// UnreadCalls returns calls with events of the previous release that no replica will apply.
func (j *Legs) UnreadCalls(ctx context.Context) ([]uuid.UUID, error) {
	ids, err := pg.Values[uuid.UUID](ctx, j.pool, unreadCalls, nil)
	if err != nil {
		return nil, fmt.Errorf("read calls with unread events: %w", err)
	}
	return ids, nil
}

const unreadEvents = `
SELECT n.at, n.kind, n.role, n.text, n.spoken_until, c.inbound,
	c.from_number, c.to_number, c.dialed_at, c.cause, c.by_us, c.outcome, c.reached, c.disclosure
FROM sip_news n JOIN sip_calls c ON c.call_id = n.call_id WHERE n.call_id = @call_id ORDER BY n.seq`

// UnreadEvent is an event of the previous release. What belongs to the end of the call is set in
// each event.
type UnreadEvent struct {
	At          time.Time               `db:"at"`
	Kind        string                  `db:"kind"`
	Role        string                  `db:"role"`
	Text        string                  `db:"text"`
	SpokenUntil *time.Time              `db:"spoken_until"`
	Inbound     bool                    `db:"inbound"`
	From        string                  `db:"from_number"`
	To          string                  `db:"to_number"`
	DialedAt    *time.Time              `db:"dialed_at"`
	Cause       string                  `db:"cause"`
	ByUs        bool                    `db:"by_us"`
	Outcome     string                  `db:"outcome"`
	Reached     string                  `db:"reached"`
	Disclosure  *agent.DisclosureRecord `db:"disclosure"`
}

const takeUnread = `DELETE FROM sip_news WHERE call_id = @call_id`

// Unread returns the events of such a call, and the guard of the transaction that applies them.
func (j *Legs) Unread(ctx context.Context, callID uuid.UUID) ([]UnreadEvent, Guard, error) {
	events, err := pg.Many[UnreadEvent](ctx, j.pool, unreadEvents, pgx.NamedArgs{"call_id": callID})
	if err != nil {
		return nil, nil, fmt.Errorf("read unread events of call %s: %w", callID, err)
	}
	return events, Owned(takeUnread, pg.Args{"call_id": callID}), nil
}
