// Package checks answers the two questions about a number, at POST and at dial time: it reads what is on
// record, lets package gate judge, and stores the decision before it answers. No stored decision, no answer.
package checks

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/store"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// Checks judges over one store by one library of packs.
type Checks struct {
	store  *store.Store
	packs  countryrules.Library
	judged *prometheus.CounterVec
}

// New makes a Gating.
func New(st *store.Store, packs countryrules.Library, metrics prometheus.Registerer) *Checks {
	g := &Checks{store: st, packs: packs, judged: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_contacts_decisions_total",
		Help: "Decisions on record by when the gates were asked (precheck, dial), result (open, later, closed) and the rule that decided (none: every gate is open).",
	}, []string{"stage", "result", "rule"})}
	metrics.MustRegister(g.judged)
	for _, stage := range []gate.Stage{gate.PreCheck, gate.Dial} {
		g.count(stage, gate.Outcome{Result: gate.Open}, 0)
		for _, rule := range []gate.Rule{gate.RuleDND, gate.RuleConsent} {
			g.count(stage, gate.Outcome{Result: gate.Denied, Rule: rule}, 0)
		}
		g.count(stage, gate.Outcome{Result: gate.Deferred, Rule: gate.RuleWindow}, 0)
	}
	return g
}

func (g *Checks) count(stage gate.Stage, v gate.Outcome, times float64) {
	g.judged.WithLabelValues(string(stage), string(v.Result), cmp.Or(string(v.Rule), "none")).Add(times)
}

// Packs are those that a policy may name.
func (g *Checks) Packs() countryrules.Library { return g.packs }

// Checked is what the gates say at dial time. TimeZone is where the person is, for what is said in the call; "" where it is not known.
type Checked struct {
	gate.Outcome
	TimeZone string
}

// Check judges at dial time, now by the database's clock. waits is the request's schedule_if_outside_hours. Where a rule counts calls, those
// who ask about one number do so one after the other.
func (g *Checks) Check(ctx context.Context, q store.Question, waits bool) (Checked, error) {
	known, err := g.store.Known(ctx, q)
	if err != nil {
		return Checked{}, err
	}
	zone := zoneOf(known, window.Zones(q.Number.Zones()))
	f := g.facts(q, known, gate.Facts{Stage: gate.Dial, At: known.Now, DeferIfClosed: waits})
	if calls, _ := countryrules.Widest(f.Rules); calls == 0 {
		d := decide(q, known, f)
		return Checked{d.Verdict, zone}, g.kept(d, g.store.Keep(ctx, d))
	}
	d, err := g.store.Counted(ctx, q, func(known store.Known, count store.Count) (store.Decision, error) {
		f, err := counted(g.facts(q, known, gate.Facts{Stage: gate.Dial, At: known.Now, DeferIfClosed: waits}), count)
		return decide(q, known, f), err
	})
	return Checked{d.Verdict, zone}, g.kept(d, err)
}

// kept counts a decision that is on record.
func (g *Checks) kept(d store.Decision, err error) error {
	if err == nil {
		g.count(d.Facts.Stage, d.Verdict, 1)
	}
	return err
}

// counted adds the dials that the rules' caps look at.
func counted(f gate.Facts, count store.Count) (gate.Facts, error) {
	calls, back := countryrules.Widest(f.Rules)
	if calls == 0 {
		return f, nil
	}
	dials, err := count(f.At.Add(-back), calls)
	f.Dials = dials
	return f, err
}

// facts completes them with what is on record and the rules for the number.
func (g *Checks) facts(q store.Question, known store.Known, f gate.Facts) gate.Facts {
	f.At = f.At.UTC().Truncate(time.Microsecond) // as fine as the database keeps it, so that a replay answers the same
	f.DND, f.Consent, f.Policy = known.DND, known.Consent, known.Policy
	if len(known.Policy.Packs) > 0 {
		place := q.Number.Place()
		f.Place, f.Rules = &place, g.packs.For(known.Policy.Choices(), place)
	}
	if known.Policy.AsksForZones() {
		f.NumberZones = window.Zones(q.Number.Zones())
		f.ContactZone = ownZone(known, &f)
	}
	return f
}

func decide(q store.Question, known store.Known, f gate.Facts) store.Decision {
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

// KnownCaller is who an inbound caller is; ContactID is "" for a stranger, TimeZone where it is not known.
type KnownCaller struct {
	ContactID string
	TimeZone  string
}

// Recognise finds the contact of a number; it never creates one.
func (g *Checks) Recognise(ctx context.Context, q store.Question) (KnownCaller, error) {
	known, err := g.store.Known(ctx, q)
	if err != nil {
		return KnownCaller{}, err
	}
	r := KnownCaller{TimeZone: zoneOf(known, window.Zones(q.Number.Zones()))}
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
