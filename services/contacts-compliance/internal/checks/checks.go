// Package checks runs the compliance gates: at POST /v1/calls (pre-check) and before a dial
// (dial-time check). It reads the inputs, evaluates them with package gate and stores the decision.
// If the decision cannot be stored, the check returns an error.
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

// Checks evaluates the gates with the data of one store and the policy packs of this build.
type Checks struct {
	store     *store.Store
	packs     countryrules.Library
	decisions *prometheus.CounterVec
}

// New creates the checks and registers their metric.
func New(st *store.Store, packs countryrules.Library, metrics prometheus.Registerer) *Checks {
	g := &Checks{store: st, packs: packs, decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_contacts_decisions_total",
		Help: "Stored decisions by stage (precheck, dial), result (open, later, closed) and the rule that decided " +
			"(none: every gate allowed the call).",
	}, []string{"stage", "result", "rule"})}
	metrics.MustRegister(g.decisions)
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
	g.decisions.WithLabelValues(string(stage), string(v.Result), cmp.Or(string(v.Rule), "none")).Add(times)
}

// Packs returns the policy packs that a calling policy may name.
func (g *Checks) Packs() countryrules.Library { return g.packs }

// Checked is the result of a dial-time check. TimeZone is the zone of the called person, for use in
// the conversation. TimeZone is empty if the zone is not known.
type Checked struct {
	gate.Outcome
	TimeZone string
}

// Check runs the dial-time check at the database's current time. deferIfClosed is the request's
// schedule_if_outside_hours. If a frequency cap applies, the checks of one number run one after the
// other, so that concurrent checks cannot exceed the cap.
func (g *Checks) Check(ctx context.Context, q store.Target, deferIfClosed bool) (Checked, error) {
	inputs, err := g.store.ReadInputs(ctx, q)
	if err != nil {
		return Checked{}, err
	}
	zone := zoneOf(inputs, window.Zones(q.Number.Zones()))
	f := g.facts(q, inputs, gate.Facts{Stage: gate.Dial, At: inputs.Now, DeferIfClosed: deferIfClosed})
	if calls, _ := countryrules.WidestCap(f.Rules); calls == 0 {
		d := decide(q, inputs, f)
		return Checked{d.Outcome, zone}, g.countStored(d, g.store.SaveDecision(ctx, d))
	}
	d, err := g.store.DecideInOrder(ctx, q, func(inputs store.Inputs, count store.RecentDials) (store.Decision, error) {
		f, err := addDials(g.facts(q, inputs, gate.Facts{Stage: gate.Dial, At: inputs.Now, DeferIfClosed: deferIfClosed}),
			count)
		return decide(q, inputs, f), err
	})
	return Checked{d.Outcome, zone}, g.countStored(d, err)
}

func (g *Checks) countStored(d store.Decision, err error) error {
	if err == nil {
		g.count(d.Facts.Stage, d.Outcome, 1)
	}
	return err
}

// addDials adds the recent dials of the number to f. The frequency caps need these dials.
func addDials(f gate.Facts, count store.RecentDials) (gate.Facts, error) {
	calls, period := countryrules.WidestCap(f.Rules)
	if calls == 0 {
		return f, nil
	}
	dials, err := count(f.At.Add(-period), calls)
	f.Dials = dials
	return f, err
}

func (g *Checks) facts(q store.Target, inputs store.Inputs, f gate.Facts) gate.Facts {
	// the database stores microseconds; with the same precision here, a later evaluation of the
	// stored inputs gives the same result
	f.At = f.At.UTC().Truncate(time.Microsecond)
	f.DND, f.Consent, f.Policy = inputs.DND, inputs.Consent, inputs.Policy
	if q.Destinations != nil {
		f.Destinations = *q.Destinations
	}
	if len(inputs.Policy.Packs) > 0 {
		place := q.Number.Place()
		f.Place, f.Rules = &place, g.packs.For(inputs.Policy.Choices(), place)
	}
	if inputs.Policy.NeedsZones() {
		f.NumberZones = window.Zones(q.Number.Zones())
		f.ContactZone = contactZone(inputs, &f)
	}
	return f
}

// decide evaluates the gates. The destination is evaluated first, because POST /v1/calls reports a
// forbidden destination before every other fault of the request.
func decide(q store.Target, inputs store.Inputs, f gate.Facts) store.Decision {
	number := subject(q, inputs)
	outcome, refused := number.RefusedDestination()
	if !refused {
		outcome = gate.Evaluate(f)
	}
	return store.Decision{
		Target: q, Facts: f, Outcome: outcome, Gates: gate.Report(f, number),
		PolicyVersion: inputs.PolicyVersion, ContactID: inputs.ContactID, JudgedAt: inputs.Now,
	}
}

// subject returns the facts for the reports of the gates. It reads the time zones even if the
// policy does not need them, so that the report shows the person's local time.
func subject(q store.Target, inputs store.Inputs) gate.Subject {
	s := gate.Subject{Number: q.Number, Zones: window.Zones(q.Number.Zones()), Destinations: q.Destinations}
	if inputs.TimeZone == nil {
		return s
	}
	if zone, err := window.LoadZone(*inputs.TimeZone); err == nil {
		s.Zones = gate.RecipientZones(gate.Facts{ContactZone: &zone}, s.Zones)
	}
	return s
}

// contactZone returns the time zone of the contact, or nil if the contact has none. If this build
// does not know the contact's zone, contactZone also clears the zones of the number, so that the
// gates refuse the call.
func contactZone(inputs store.Inputs, f *gate.Facts) *window.Zone {
	if inputs.TimeZone == nil {
		return nil
	}
	zone, err := window.LoadZone(*inputs.TimeZone)
	if err != nil {
		f.NumberZones = nil
		return nil
	}
	return &zone
}

// zoneOf returns the time zone in which the agent and the person make appointments. This is the
// contact's zone, if the contact has one. Otherwise it is the zone of the number, if all possible
// zones of the number have the same local time. Otherwise zoneOf returns "".
func zoneOf(inputs store.Inputs, zones []window.Zone) string {
	if inputs.TimeZone != nil {
		return *inputs.TimeZone
	}
	for _, z := range zones {
		if z.Offset(inputs.Now) != zones[0].Offset(inputs.Now) {
			return ""
		}
	}
	if len(zones) == 0 {
		return ""
	}
	return zones[0].String()
}

// KnownCaller describes an inbound caller. ContactID is empty if the workspace has no contact with
// this number. TimeZone is empty if the zone is not known.
type KnownCaller struct {
	ContactID string
	TimeZone  string
}

// LookupCaller finds the contact of a number. It does not create a contact.
func (g *Checks) LookupCaller(ctx context.Context, q store.Target) (KnownCaller, error) {
	inputs, err := g.store.ReadInputs(ctx, q)
	if err != nil {
		return KnownCaller{}, err
	}
	r := KnownCaller{TimeZone: zoneOf(inputs, window.Zones(q.Number.Zones()))}
	if inputs.ContactID != nil {
		r.ContactID = inputs.ContactID.String()
	}
	return r, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
