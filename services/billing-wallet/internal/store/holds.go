package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/ledger"
)

const holdColumns = `request_id, workspace_id, amount_micro, currency, per_minute_micro, increment_seconds, max_call_seconds,
       state, captured_micro, call_id, inbound`

// ratesForNumbers does one index lookup for each prefix. With the condition prefix = ANY(…),
// Postgres can make a generic plan for workspaces with few rates. Such a plan reads all rates of
// the workspace.
const ratesForNumbers = `
SELECT r.prefix, r.per_minute_micro, r.increment_seconds FROM unnest(@prefixes::text[]) AS wanted (prefix)
CROSS JOIN LATERAL (SELECT prefix, per_minute_micro, increment_seconds FROM rates
                    WHERE workspace_id = @workspace_id AND prefix = wanted.prefix LIMIT 1) AS r`

// holdsByRequest does one primary key lookup for each id. With the condition request_id = ANY(…),
// Postgres can make a plan for a small table. Such a plan reads the whole table while the wallet is
// locked.
const holdsByRequest = `
SELECT ` + holdColumns + ` FROM unnest(@request_ids::uuid[]) AS wanted (id)
CROSS JOIN LATERAL (SELECT ` + holdColumns + ` FROM holds WHERE request_id = wanted.id LIMIT 1) AS h`

// Hold decides the orders of one workspace one after another, in one commit. The wallet is locked
// for one round trip and the commit. Hold returns ErrNoWallet if the workspace has no wallet.
func (s *Store) Hold(ctx context.Context, workspaceID uuid.UUID, orders []holds.Order) (decisions []holds.Decision, err error) {
	err = pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		wallet, view, err := s.openWallet(ctx, tx, workspaceID, orders)
		if err != nil {
			return err
		}
		decisions = make([]holds.Decision, 0, len(orders))
		var made []holds.Hold
		for _, order := range orders {
			decision := view.Decide(order)
			decisions = append(decisions, decision)
			if decision.Err == nil && !decision.Repeated {
				made = append(made, decision.Hold)
			}
		}
		if len(made) == 0 {
			return nil
		}
		return insertHolds(tx, wallet, made)
	})
	if err != nil {
		return nil, fmt.Errorf("hold for workspace %s: %w", workspaceID, err)
	}
	return decisions, nil
}

func (s *Store) openWallet(ctx context.Context, tx *pg.Pipeline, workspaceID uuid.UUID,
	orders []holds.Order) (ledger.Wallet, *holds.WalletView, error) {
	var (
		prefixes []string
		requests []uuid.UUID
		wallets  []ledger.Wallet
		known    []holds.Hold
		view     = &holds.WalletView{Known: make(map[uuid.UUID]holds.Hold, len(orders))}
	)
	for _, order := range orders {
		prefixes, requests = append(prefixes, holds.Prefixes(order.To)...), append(requests, order.RequestID)
	}
	batch := &pgx.Batch{}
	batch.Queue(ratesForNumbers, pg.Args{"workspace_id": workspaceID,
		"prefixes": prefixes}).Query(collectInto(&view.Rates))
	batch.Queue(lockWallet, pg.Args{"workspace_id": workspaceID}).Query(collectInto(&wallets))
	// This query follows the statement that locks the wallet. So it also reads the rows that the
	// previous owner of the lock committed.
	batch.Queue(holdsByRequest, pg.Args{"request_ids": requests}).Query(collectInto(&known))
	if err := tx.RunBatch(ctx, batch); err != nil {
		return ledger.Wallet{}, nil, fmt.Errorf("lock wallet: %w", err)
	}
	if len(wallets) == 0 {
		return ledger.Wallet{}, nil, ErrNoWallet
	}
	view.Spendable, view.Currency = wallets[0].Wallet, wallets[0].Currency
	for _, h := range known {
		view.Known[h.RequestID] = h
	}
	return wallets[0], view, nil
}

const openHolds = `
SELECT (SELECT count(*) FROM (SELECT FROM holds WHERE state = 'held' LIMIT 100000) AS bounded) AS open, count(*) AS unconfirmed,
       coalesce(extract(epoch FROM now() - min(created_at)), 0)::double precision AS oldest_unconfirmed_seconds
FROM holds WHERE state = 'held' AND confirmed_at IS NULL`

// OpenHolds contains the numbers of holds that are not settled. Open is counted up to 100 000.
type OpenHolds struct {
	Open                     int64
	Unconfirmed              int64
	OldestUnconfirmedSeconds float64
}

// OpenHolds counts the open holds of all workspaces.
func (s *Store) OpenHolds(ctx context.Context) (OpenHolds, error) {
	counted, err := pg.One[OpenHolds](ctx, s.pool, openHolds, nil)
	if err != nil {
		return OpenHolds{}, fmt.Errorf("count open holds: %w", err)
	}
	return counted, nil
}

const insertHeld = `
INSERT INTO holds (request_id, workspace_id, amount_micro, currency, per_minute_micro, increment_seconds,
       max_call_seconds, state, inbound)
SELECT h.request_id, @workspace_id, h.amount, @currency, h.per_minute, h.increment, h.max_call, 'held', h.inbound
FROM unnest(@request_ids::uuid[], @amounts::bigint[], @per_minute::bigint[], @increments::integer[],
            @max_call::integer[], @inbound::boolean[])
            AS h (request_id, amount, per_minute, increment, max_call, inbound)`

func insertHolds(tx *pg.Pipeline, wallet ledger.Wallet, made []holds.Hold) error {
	n := len(made)
	requests, amounts, perMinute := make([]uuid.UUID, n), make([]int64, n), make([]int64, n)
	increments, maxCall, inbound := make([]int32, n), make([]int32, n), make([]bool, n)
	posted, balances := make([]ledger.Transaction, n), wallet.Accounts
	for i, h := range made {
		requests[i], amounts[i], perMinute[i] = h.RequestID, int64(h.Amount), int64(h.PerMinute)
		increments[i], maxCall[i], inbound[i] = h.IncrementSeconds, h.MaxCallSeconds, h.Inbound
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make transaction id: %w", err)
		}
		posted[i] = ledger.Held(id, h.WorkspaceID, h.RequestID, h.Amount)
		if balances, err = balances.Post(posted[i]); err != nil {
			return fmt.Errorf("post hold %s: %w", h.RequestID, err)
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(insertHeld, pg.Args{
		"workspace_id": wallet.WorkspaceID, "currency": wallet.Currency, "request_ids": requests, "amounts": amounts,
		"per_minute": perMinute, "increments": increments, "max_call": maxCall, "inbound": inbound,
	})
	queuePostings(batch, wallet, balances, posted)
	tx.QueueBatch(batch)
	return nil
}

// confirmHold excludes the final states. With the condition state = 'held', Postgres could read the
// partial index holds_unconfirmed, which can contain many dead rows.
const confirmHold = `
UPDATE holds SET confirmed_at = now()
WHERE request_id = (SELECT request_id FROM holds WHERE request_id = @request_id AND workspace_id = @workspace_id FOR UPDATE SKIP LOCKED)
    AND state NOT IN ('captured', 'released') AND confirmed_at IS NULL`

// Request identifies a call request, or an inbound call if Inbound is true.
type Request struct {
	WorkspaceID, RequestID uuid.UUID
	Inbound                bool
}

// Confirm stores that the requests or inbound calls of the holds exist. confirmed[i] is true if the
// hold of requests[i] was changed. Confirm skips locked rows, so that it never waits. The confirmer
// reports a skipped hold later, and the service `calls` then publishes the event again.
func (s *Store) Confirm(ctx context.Context, tx pgx.Tx, requests ...Request) (confirmed []bool, err error) {
	var batch pgx.Batch
	confirmed = make([]bool, len(requests))
	for i, r := range requests {
		args := pg.Args{"workspace_id": r.WorkspaceID, "request_id": r.RequestID}
		batch.Queue(confirmHold, args).Exec(setChanged(&confirmed[i]))
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("confirm %d holds: %w", len(requests), err)
	}
	return confirmed, nil
}

const markUnconfirmed = `
WITH due AS (
    SELECT request_id FROM holds
    WHERE state = 'held' AND confirmed_at IS NULL
      AND created_at < now() - make_interval(secs => @after)
      AND (confirm_requested_at IS NULL OR confirm_requested_at < now() - make_interval(secs => @after))
    ORDER BY created_at
    LIMIT @limit
    FOR UPDATE SKIP LOCKED)
UPDATE holds SET confirm_requested_at = now() FROM due WHERE holds.request_id = due.request_id
RETURNING holds.request_id, holds.workspace_id, holds.inbound`

// markLongOpen selects holds that have been open for a long time, each at most once in @after
// seconds. The holds that were selected longest ago come first, so that LIMIT excludes no hold
// permanently.
const markLongOpen = `
WITH due AS (
    SELECT request_id FROM holds
    WHERE state = 'held' AND confirmed_at IS NOT NULL
      AND coalesce(confirm_requested_at, created_at) < now() - make_interval(secs => @after)
    ORDER BY coalesce(confirm_requested_at, created_at)
    LIMIT @limit
    FOR UPDATE SKIP LOCKED)
UPDATE holds SET confirm_requested_at = now() FROM due WHERE holds.request_id = due.request_id
RETURNING holds.request_id, holds.workspace_id, holds.inbound`

// EnqueueUnconfirmed writes an event to the outbox for up to limit holds that are older than minAge
// and whose event `requested` did not arrive. A hold gets at most one event in each period of the
// duration minAge.
func (s *Store) EnqueueUnconfirmed(
	ctx context.Context, minAge time.Duration, limit int, event func(Request) outbox.Event,
) (marked []Request, err error) {
	return s.enqueueMarked(ctx, markUnconfirmed, minAge, limit, event)
}

// EnqueueLongOpen writes an event to the outbox for up to limit confirmed holds that are open for
// longer than minAge. A hold gets at most one event in each period of the duration minAge.
func (s *Store) EnqueueLongOpen(
	ctx context.Context, minAge time.Duration, limit int, event func(Request) outbox.Event,
) (marked []Request, err error) {
	return s.enqueueMarked(ctx, markLongOpen, minAge, limit, event)
}

func (s *Store) enqueueMarked(
	ctx context.Context, statement string, minAge time.Duration, limit int, event func(Request) outbox.Event,
) (marked []Request, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		marked, err = pg.Many[Request](ctx, tx, statement, pgx.NamedArgs{"after": minAge.Seconds(), "limit": limit})
		if err != nil || len(marked) == 0 {
			return err
		}
		events := make([]outbox.Event, 0, len(marked))
		for _, hold := range marked {
			events = append(events, event(hold))
		}
		return outbox.Put(ctx, tx, events...)
	})
	if err != nil {
		return nil, fmt.Errorf("enqueue unconfirmed events: %w", err)
	}
	return marked, nil
}
