package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/siptrace"
)

const (
	// answerTimeout is how long Messages waits until all processes have stored the messages that they
	// recorded.
	answerTimeout = 5 * time.Second
	pollInterval  = 100 * time.Millisecond
)

// Traces passes an operator's request for recorded SIP messages through the database to all dialer
// processes. It returns the messages that these processes stored.
type Traces struct {
	pool  *pgxpool.Pool
	lease time.Duration
	wait  time.Duration
}

// NewTraces returns a store that uses the pool. Messages waits only for processes that have sent a
// heartbeat within the lease.
func NewTraces(pool *pgxpool.Pool, lease time.Duration) *Traces {
	return &Traces{pool: pool, lease: lease, wait: answerTimeout}
}

const insertTraceRequest = `
INSERT INTO sip_trace_requests (request_id, trunk_id, sip_call_id) VALUES (@request, @trunk, @call_id)`

const deleteOld = `DELETE FROM sip_trace_requests WHERE requested_at < now() - interval '1 minute'`

// DeleteOld deletes trace requests that are older than a minute, together with the stored messages.
// Such a request remains only if its process was killed.
func (s *Traces) DeleteOld(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, deleteOld); err != nil {
		return fmt.Errorf("delete old SIP trace requests: %w", err)
	}
	return nil
}

const pendingRequests = `
SELECT request_id, trunk_id, sip_call_id FROM sip_trace_requests r
WHERE NOT EXISTS (SELECT 1 FROM sip_trace_answers a WHERE a.request_id = r.request_id AND a.owner = @owner)`

// Pending returns the requests to which the given process has not responded.
func (s *Traces) Pending(ctx context.Context, owner uuid.UUID) ([]siptrace.Request, error) {
	found, err := pg.Many[siptrace.Request](ctx, s.pool, pendingRequests, pg.Args{"owner": owner})
	if err != nil {
		return nil, fmt.Errorf("read SIP trace requests: %w", err)
	}
	return found, nil
}

const insertAnswer = `
INSERT INTO sip_trace_answers (request_id, owner, messages)
SELECT request_id, @owner, @messages::json FROM sip_trace_requests WHERE request_id = @request FOR SHARE
ON CONFLICT (request_id, owner) DO NOTHING`

// Answer stores the messages that a process recorded, for a trace request. It stores nothing if the
// request has ended.
func (s *Traces) Answer(ctx context.Context, request, owner uuid.UUID, messages []siptrace.Message) error {
	encoded, err := json.Marshal(messages)
	if err != nil {
		return fmt.Errorf("encode SIP trace: %w", err)
	}
	_, err = s.pool.Exec(ctx, insertAnswer, pg.Args{"request": request, "owner": owner, "messages": string(encoded)})
	if err != nil {
		return fmt.Errorf("answer SIP trace request %s: %w", request, err)
	}
	return nil
}

const readTraceAnswers = `
SELECT a.messages FROM sip_leg_owners o
LEFT JOIN sip_trace_answers a ON a.owner = o.owner AND a.request_id = @request
WHERE o.seen_at > now() - @lease::interval`

const endTrace = `DELETE FROM sip_trace_requests WHERE request_id = @request`

// Messages returns the messages of a trunk that all processes recorded, oldest first. missing is
// the number of live processes that did not respond within five seconds.
func (s *Traces) Messages(
	ctx context.Context, trunkID uuid.UUID, callID string,
) (all []siptrace.Message, missing int, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, 0, fmt.Errorf("request SIP trace: %w", err)
	}
	args := pg.Args{"request": id, "trunk": trunkID, "call_id": callID}
	if _, err := s.pool.Exec(ctx, insertTraceRequest, args); err != nil {
		return nil, 0, fmt.Errorf("request SIP trace: %w", err)
	}
	defer func() {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		// If this statement fails, DeleteOld deletes the request later.
		_, _ = s.pool.Exec(ended, endTrace, pg.Args{"request": id})
	}()
	for begun := time.Now(); ; {
		if all, missing, err = s.readAnswers(ctx, id); err != nil || missing == 0 || time.Since(begun) > s.wait {
			break
		}
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
	slices.SortStableFunc(all, func(a, b siptrace.Message) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	return all, missing, err
}

func (s *Traces) readAnswers(ctx context.Context, id uuid.UUID) (all []siptrace.Message, missing int, err error) {
	found, err := pg.Values[[]byte](ctx, s.pool, readTraceAnswers, pg.Args{"request": id, "lease": s.lease})
	if err != nil {
		return nil, 0, fmt.Errorf("read SIP trace: %w", err)
	}
	for _, encoded := range found {
		if encoded == nil {
			missing++
			continue
		}
		var of []siptrace.Message
		if err := json.Unmarshal(encoded, &of); err != nil {
			return nil, 0, fmt.Errorf("read SIP trace: %w", err)
		}
		all = append(all, of...)
	}
	return all, missing, nil
}
