package dial

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// Intents publishes intents to Kafka. An intent is published before the fence (the row that permits
// one dial) is committed. If the database loses the fence, the intent prevents a second dial
// (package dbfailover).
type Intents interface {
	// Intend publishes an intent and returns nil after Kafka has acknowledged it. If it returns an
	// error, the caller must not commit the fence.
	Intend(ctx context.Context, i store.Intent) error
	// Withdraw publishes that no phone rang for the call and that no phone will ring for it.
	Withdraw(i store.Intent)
}

func (d *Dialer) publishIntent(ctx context.Context, r dialqueue.Request, o carrier.Originate) error {
	return d.intents.Intend(ctx, d.newIntent(r, o))
}

// withdrawIntent publishes that no phone rang for the call and that no phone will ring.
//
// The intent of an ended request must not be withdrawn. If a failover loses the end, the
// reconciliation needs the intent to end the request again, with dial_state_unknown.
func (d *Dialer) withdrawIntent(r dialqueue.Request, o carrier.Originate) {
	d.intents.Withdraw(d.newIntent(r, o))
}

func (d *Dialer) newIntent(r dialqueue.Request, o carrier.Originate) store.Intent {
	return store.Intent{
		CallRequestID: r.CallRequestID, WorkspaceID: r.WorkspaceID, CallID: o.CallID, InstanceID: d.store.Instance(),
		From: o.From, To: string(r.To), Trunk: d.carrier.Name(), AgentID: r.AgentID, ContactID: r.ContactID,
		MaxCallSeconds: r.MaxCallSeconds, QueuedAt: r.QueuedAt, TimeZone: r.TimeZone, ByPerson: r.ByPerson, At: time.Now(),
	}
}

type activeCalls struct {
	mu    sync.Mutex
	calls map[uuid.UUID]bool
}

func (u *activeCalls) add(callID uuid.UUID) (remove func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls == nil {
		u.calls = map[uuid.UUID]bool{}
	}
	u.calls[callID] = true
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.calls, callID)
	}
}

func (u *activeCalls) has(callID uuid.UUID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls[callID]
}
