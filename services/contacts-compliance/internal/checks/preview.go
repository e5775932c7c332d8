package checks

import (
	"context"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/store"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// Preview is what a dial would be told at one instant, as things stand. Nobody is called for it and nothing is kept.
type Preview struct {
	// At is the instant that was asked about, never before now.
	At time.Time
	// Verdict is Open or Closed; a Closed one carries the message that a customer would read.
	Verdict gate.Outcome
	// Next is when the number may be called: At when it may be then, nil when no waiting helps.
	Next *time.Time
	// Facts are all that it rests on, Zones every one the person may be in.
	Facts         gate.Facts
	Zones         []window.Zone
	PolicyVersion int
}

// Preview judges a number of the workspace at an instant; zero or past: now. Its question names no call request.
func (g *Checks) Preview(ctx context.Context, q store.Question, at time.Time) (Preview, error) {
	known, err := g.store.Known(ctx, q)
	if err != nil {
		return Preview{}, err
	}
	f, err := counted(g.facts(q, known, gate.Facts{Stage: gate.Dial, At: later(at, known.Now)}),
		func(since time.Time, calls int) ([]time.Time, error) { return g.store.Dials(ctx, q, since, calls) })
	if err != nil {
		return Preview{}, err
	}
	p := Preview{At: f.At, Facts: f, Zones: gate.RecipientZones(f, window.Zones(q.Number.Zones())), PolicyVersion: known.PolicyVersion}
	if kind := q.Number.Forbidden(); kind != "" {
		p.Verdict = gate.Forbidden(kind)
		return p, nil
	}
	p.Verdict = gate.Judge(f)
	f.DeferIfClosed = true
	if v := gate.Judge(f); v.Result != gate.Denied {
		p.Next = &v.At
	}
	return p, nil
}
