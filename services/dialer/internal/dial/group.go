package dial

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/services/dialer/internal/callstate"
)

const (
	// enoughMembers is how many members must wait, for each running group, before another group is
	// started beside them.
	enoughMembers = 16
	// mostMembers bounds a group.
	mostMembers = 64
)

// groups runs the writes of concurrent attempts together, with one commit for a group. While a group
// runs, further members wait and form the next one. A member that arrives while none runs does not wait.
type groups[T any] struct {
	// run returns one result per member.
	run func(context.Context, []T) []error

	mu      sync.Mutex
	waiting []member[T]
	running int
}

type member[T any] struct {
	item T
	done chan error // has room for one error
}

// do adds an item to a group and returns its result. Attempts are not canceled, so do waits for it.
func (g *groups[T]) do(item T) error {
	m := member[T]{item: item, done: make(chan error, 1)}
	g.mu.Lock()
	if g.waiting = append(g.waiting, m); len(g.waiting) > enoughMembers*g.running {
		g.running++
		go g.work()
	}
	g.mu.Unlock()
	return <-m.done
}

// work runs groups until no member waits.
func (g *groups[T]) work() {
	for group := g.take(); len(group) > 0; group = g.take() {
		items := make([]T, len(group))
		for i, m := range group {
			items[i] = m.item
		}
		for i, err := range g.run(context.Background(), items) {
			group[i].done <- err
		}
	}
}

func (g *groups[T]) take() []member[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), mostMembers)
	group := g.waiting[:n:n]
	if g.waiting = g.waiting[n:]; n == 0 {
		g.running--
	}
	return group
}

// callChange is a change of one call.
type callChange struct {
	callID uuid.UUID
	decide func(*callstate.Call)
}

// changeCalls stores changes in one transaction. If the database refuses it, each change gets its own.
func (d *Dialer) changeCalls(ctx context.Context, changes []callChange) []error {
	ids := make([]uuid.UUID, len(changes))
	for i, c := range changes {
		ids[i] = c.callID
	}
	err := d.store.Change(ctx, ids, func(calls map[uuid.UUID]*callstate.Call) {
		for _, change := range changes {
			if c := calls[change.callID]; c != nil {
				change.decide(c)
			}
		}
	})
	results := make([]error, len(changes))
	var refused *pgconn.PgError
	alone := len(changes) > 1 && errors.As(err, &refused)
	for i := range changes {
		if results[i] = err; alone {
			results[i] = d.changeCalls(ctx, changes[i:i+1])[0]
		}
	}
	return results
}
