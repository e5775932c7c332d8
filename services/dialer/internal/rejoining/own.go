package rejoining

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store/past"
)

const (
	// Gather is how long a database that does not stand is left as it is before it is gone through: by then every dialer that lives has looked at it, and said what it dialled itself,
	// and what the old one's relays had read is told.
	Gather = look + patience + time.Second
	// remembered is how far back from its last dial a process knows what it dialled without having looked it up: longer than facts wait to be told, as a rule.
	remembered = 2 * time.Minute
)

// own is what this process has dialled lately, the oldest first.
type own struct {
	mu    sync.Mutex
	dials []past.Told
}

// Dialling notes a dial whose fence is committed, before Held is asked the last time: a database that takes the place of the one that has the fence may not know it, and no fact tell of it.
func (g *Guard) Dialling(r request.Request, callID uuid.UUID, from string) {
	now := time.Now()
	g.own.mu.Lock()
	defer g.own.mu.Unlock()
	old := 0
	for old < len(g.own.dials) && now.Sub(*g.own.dials[old].Call.DialedAt) > remembered {
		old++
	}
	g.own.dials = append(g.own.dials[old:], past.Told{RequestID: r.CallRequestID, WorkspaceID: r.WorkspaceID, State: request.Dialing, Call: &past.Call{
		ID: callID, AgentID: r.AgentID, ContactID: r.ContactID, From: from, To: string(r.To), Status: "initiated", QueuedAt: r.QueuedAt, DialedAt: &now,
	}})
}

// recent are the dials of late, the newest first, one of a request. Of several to a number only the newest may live: of the others it is known that they were dialled, and no more.
func (o *own) recent() (dials []past.Told) {
	o.mu.Lock()
	defer o.mu.Unlock()
	type number struct {
		workspace uuid.UUID
		to        string
	}
	requests, numbers := map[uuid.UUID]bool{}, map[number]bool{}
	for _, t := range slices.Backward(o.dials) {
		to := number{t.WorkspaceID, t.Call.To}
		if requests[t.RequestID] || o.dials[len(o.dials)-1].Call.DialedAt.Sub(*t.Call.DialedAt) > remembered {
			continue
		}
		if numbers[to] {
			t.Call = nil
		}
		requests[t.RequestID], numbers[to] = true, true
		dials = append(dials, t)
	}
	return dials
}

// settleOwn makes the database know what this process has dialled lately.
func settleOwn(ctx context.Context, st *past.Store, dials []past.Told) error {
	unknown, err := st.Unknown(ctx, dials)
	if err != nil || len(unknown) == 0 {
		return err
	}
	slog.WarnContext(ctx, "the database does not know of dials of this process", "dials", len(unknown))
	if err := st.Settle(ctx, unknown); !anotherLives(err) {
		return err
	}
	return oneByOne(ctx, unknown, func(ctx context.Context, t past.Told) error { return st.Settle(ctx, []past.Told{t}) })
}

// oneByOne settles in the order in which they were dialled what could not be settled together. Where another call to that number lives all the same, it is known that it was dialled, and no more.
func oneByOne(ctx context.Context, dials []past.Told, settle func(context.Context, past.Told) error) error {
	dialled := func(t past.Told) time.Time {
		if t.Call == nil || t.Call.DialedAt == nil {
			return time.Time{}
		}
		return *t.Call.DialedAt
	}
	slices.SortStableFunc(dials, func(a, b past.Told) int { return dialled(a).Compare(dialled(b)) })
	for _, t := range dials {
		err := settle(ctx, t)
		if anotherLives(err) {
			t.Call = nil
			err = settle(ctx, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// anotherLives says that the database knows of another live call to that number (class 23), which has ended since.
func anotherLives(err error) bool {
	var fault *pgconn.PgError
	return errors.As(err, &fault) && strings.HasPrefix(fault.Code, "23")
}
