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
	// Another group starts if more than membersPerGroup writes wait per running group. A group has at
	// most maxMembers writes.
	membersPerGroup = 16
	maxMembers      = 64
)

// writeGroups combines the database writes of concurrent attempts. Each group of writes is one
// transaction. While a group runs, new writes wait and form the next group. If no group runs, a
// write starts a group immediately.
type writeGroups[T any] struct {
	// writeItems writes the items of a group. It returns one result per item, in the same order.
	writeItems func(context.Context, []T) []error

	mu      sync.Mutex
	waiting []member[T]
	running int
}

type member[T any] struct {
	item T
	done chan error
}

// write adds the item to a group and returns after the transaction of the group. It takes no
// context, because attempts are never canceled.
func (g *writeGroups[T]) write(item T) error {
	m := member[T]{item: item, done: make(chan error, 1)}
	g.mu.Lock()
	if g.waiting = append(g.waiting, m); len(g.waiting) > membersPerGroup*g.running {
		g.running++
		go g.runGroups()
	}
	g.mu.Unlock()
	return <-m.done
}

func (g *writeGroups[T]) runGroups() {
	for group := g.nextGroup(); len(group) > 0; group = g.nextGroup() {
		items := make([]T, len(group))
		for i, m := range group {
			items[i] = m.item
		}
		for i, err := range g.writeItems(context.Background(), items) {
			group[i].done <- err
		}
	}
}

func (g *writeGroups[T]) nextGroup() []member[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxMembers)
	group := g.waiting[:n:n]
	if g.waiting = g.waiting[n:]; n == 0 {
		g.running--
	}
	return group
}

type callChange struct {
	callID uuid.UUID
	decide func(*callstate.Call)
}

// changeCalls stores all changes in one transaction. If the database rejects the transaction, each
// change is stored in its own transaction, so that one invalid change does not prevent the other
// changes.
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
