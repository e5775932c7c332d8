package checks

import (
	"context"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/store"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// Preview is the result that a check of a number would return at one given time. A preview stores
// no decision and places no call.
type Preview struct {
	// At is the time for which the gates were evaluated. It is never in the past.
	At time.Time
	// Outcome is open or denied. If it is denied, it has the message for the customer.
	Outcome gate.Outcome
	// Next is the next time at which the number may be called. It is nil if waiting does not help.
	Next *time.Time
	// Facts are the inputs of the gates. Zones are all time zones in which the person may be.
	Facts         gate.Facts
	Zones         []window.Zone
	Gates         []gate.GateReport
	PolicyVersion int
}

// Preview evaluates the gates of one stage for a number at the given time. If this time is zero or
// in the past, Preview uses the current time. q must not name a call request.
func (g *Checks) Preview(ctx context.Context, q store.Target, stage gate.Stage, at time.Time) (Preview, error) {
	inputs, err := g.store.ReadInputs(ctx, q)
	if err != nil {
		return Preview{}, err
	}
	f, err := addDials(g.facts(q, inputs, gate.Facts{Stage: stage, At: later(at, inputs.Now)}),
		func(since time.Time, calls int) ([]time.Time, error) { return g.store.Dials(ctx, q, since, calls) })
	if err != nil {
		return Preview{}, err
	}
	number := subject(q, inputs)
	p := Preview{At: f.At, Facts: f, Zones: gate.RecipientZones(f, window.Zones(q.Number.Zones())),
		Gates: gate.Report(f, number), PolicyVersion: inputs.PolicyVersion}
	if outcome, refused := number.RefusedDestination(); refused {
		p.Outcome = outcome
		return p, nil
	}
	p.Outcome = gate.Evaluate(f)
	f.DeferIfClosed = true
	if v := gate.Evaluate(f); v.Result != gate.Denied {
		p.Next = &v.At
	}
	return p, nil
}
