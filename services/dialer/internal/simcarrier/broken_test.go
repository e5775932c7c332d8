package simcarrier_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/carrier/carriertest"
)

// broken is a carrier that breaks a rule. Each function that is set replaces a method of the
// correct carrier.
type broken struct {
	Carrier   carrier.EventStream
	originate func(context.Context, carrier.Originate) (time.Time, error)
	answer    func(context.Context, uuid.UUID) error
	hangup    func(context.Context, uuid.UUID) (carrier.CallStatus, error)
	refuse    func(context.Context, uuid.UUID) (carrier.CallStatus, error)
	find      func(context.Context, uuid.UUID) (carrier.CallStatus, error)
	events    func(context.Context, int64, time.Duration) (carrier.Batch, error)
	ready     func(context.Context) error
	name      string
}

func (b *broken) Name() string {
	if b.name != "" {
		return b.name
	}
	return b.Carrier.Name()
}

func (b *broken) Originate(ctx context.Context, o carrier.Originate) (time.Time, error) {
	if b.originate != nil {
		return b.originate(ctx, o)
	}
	return b.Carrier.Originate(ctx, o)
}

func (b *broken) Answer(ctx context.Context, id uuid.UUID) error {
	if b.answer != nil {
		return b.answer(ctx, id)
	}
	return b.Carrier.Answer(ctx, id)
}

func (b *broken) Hangup(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
	if b.hangup != nil {
		return b.hangup(ctx, id)
	}
	return b.Carrier.Hangup(ctx, id)
}

func (b *broken) Refuse(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
	if b.refuse != nil {
		return b.refuse(ctx, id)
	}
	return b.Carrier.Refuse(ctx, id)
}

func (b *broken) Find(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
	if b.find != nil {
		return b.find(ctx, id)
	}
	return b.Carrier.Find(ctx, id)
}

func (b *broken) Events(ctx context.Context, after int64, wait time.Duration) (carrier.Batch, error) {
	if b.events != nil {
		return b.events(ctx, after, wait)
	}
	return b.Carrier.Events(ctx, after, wait)
}

func (b *broken) Ready(ctx context.Context) error {
	if b.ready != nil {
		return b.ready(ctx)
	}
	return b.Carrier.Ready(ctx)
}

type ruleResult struct {
	ctx    context.Context
	mu     sync.Mutex
	faults []string
}

func (*ruleResult) Helper()                    {}
func (v *ruleResult) Context() context.Context { return v.ctx }
func (v *ruleResult) Errorf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}
func (v *ruleResult) Fatalf(format string, args ...any) { v.Errorf(format, args...); runtime.Goexit() }

func runRule(t *testing.T, rule string, n *carriertest.Network) []string {
	t.Helper()
	rules := carriertest.Rules()
	i := slices.IndexFunc(rules, func(r carriertest.Rule) bool { return r.Name == rule })
	if i < 0 {
		t.Fatalf("there is no rule %q", rule)
	}
	// Rules that expect no event wait for a while. The timeout must be longer.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	v := &ruleResult{ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rules[i].Check(v, n)
	}()
	<-done
	return v.faults
}

func eachBatch(b *broken, rewrite func([]carrier.Event) []carrier.Event) {
	b.events = func(ctx context.Context, after int64, wait time.Duration) (carrier.Batch, error) {
		batch, err := b.Carrier.Events(ctx, after, wait)
		batch.Events = rewrite(batch.Events)
		return batch, err
	}
}

func eachEvent(b *broken, rewrite func(*carrier.Event)) {
	eachBatch(b, func(events []carrier.Event) []carrier.Event {
		for i := range events {
			rewrite(&events[i])
		}
		return events
	})
}

func ignoring(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }
