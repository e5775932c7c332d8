// Package gating answers the two questions about a number, at POST and at dial time: it reads what is on
// record, lets package gate judge, and stores the decision before it answers. No stored decision, no answer.
package gating

import (
	"context"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/store"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// Gating judges over one store.
type Gating struct{ store *store.Store }

// New makes a Gating.
func New(st *store.Store) *Gating { return &Gating{store: st} }

// Check judges at dial time, now by the database's clock. waits is the request's schedule_if_outside_hours.
func (g *Gating) Check(ctx context.Context, q store.Question, waits bool) (gate.Verdict, error) {
	known, err := g.store.Known(ctx, q)
	if err != nil {
		return gate.Verdict{}, err
	}
	d := judge(q, known, gate.Facts{Stage: gate.Dial, At: known.Now, Waits: waits})
	return d.Verdict, g.store.Keep(ctx, d)
}

// judge completes the facts with what is on record and decides.
func judge(q store.Question, known store.Known, f gate.Facts) store.Decision {
	f.At = f.At.UTC().Truncate(time.Microsecond) // as fine as the database keeps it, so that a replay answers the same
	f.DND, f.Consent, f.Policy = known.DND, known.Consent, known.Policy
	if known.Policy.AsksForZones() {
		f.NumberZones = window.Zones(q.Number.Zones())
		f.ContactZone = ownZone(known, &f)
	}
	return store.Decision{
		Question: q, Facts: f, Verdict: gate.Judge(f),
		PolicyVersion: known.PolicyVersion, ContactID: known.ContactID, JudgedAt: known.Now,
	}
}

// ownZone is the contact's zone. One that this build no longer knows makes every zone unknown: the person
// may be asleep anywhere.
func ownZone(known store.Known, f *gate.Facts) *window.Zone {
	if known.TimeZone == nil {
		return nil
	}
	zone, err := window.LoadZone(*known.TimeZone)
	if err != nil {
		f.NumberZones = nil
		return nil
	}
	return &zone
}

// zoneOf is the zone a person is in for making an appointment: their own, or the number's when all its zones
// show the same time; "" otherwise.
func zoneOf(known store.Known, zones []window.Zone) string {
	if known.TimeZone != nil {
		return *known.TimeZone
	}
	for _, z := range zones {
		if z.Offset(known.Now) != zones[0].Offset(known.Now) {
			return ""
		}
	}
	if len(zones) == 0 {
		return ""
	}
	return zones[0].String()
}

// Recognised is who an inbound caller is; ContactID is "" for a stranger, TimeZone where it is not known.
type Recognised struct {
	ContactID string
	TimeZone  string
}

// Recognise finds the contact of a number; it never creates one.
func (g *Gating) Recognise(ctx context.Context, q store.Question) (Recognised, error) {
	known, err := g.store.Known(ctx, q)
	if err != nil {
		return Recognised{}, err
	}
	r := Recognised{TimeZone: zoneOf(known, window.Zones(q.Number.Zones()))}
	if known.ContactID != nil {
		r.ContactID = known.ContactID.String()
	}
	return r, nil
}

// later is the later of two instants.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
