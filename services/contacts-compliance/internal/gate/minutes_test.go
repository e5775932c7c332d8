package gate_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

var large = flag.Bool("large", false, "check every minute of two years, as make test-nightly does")

// percent returns the percentage of ordinary days that the test checks. Days on which a clock
// changes (daylight saving time) are always checked.
func percent() int {
	if *large {
		return 100
	}
	return 1
}

func walkCases(t testing.TB) map[string]gate.Facts {
	cases := map[string]gate.Facts{}
	add := func(name string, f gate.Facts, change func(*gate.Facts)) {
		change(&f)
		cases[name] = f
	}
	same := func(*gate.Facts) {}
	zone := func(name string) *window.Zone { return &zones(t, name)[0] }
	for state, number := range map[string]phone.Number{
		"AL": "+12055551234", "CT": "+12035551234", "FL panhandle": "+18505551234", "IL": "+12175551234",
		"KY": "+12705551234", "LA": "+12255551234", "MA": "+16175551234",
		"MD": "+13015551234", "ME": "+12075551234", "MI": "+19065551234", "MN": "+12185551234", "MS": "+16015551234",
		"NE": "+13085551234", "NM": "+15055551234",
		"NV": "+17755551234", "OK": "+14055551234", "PA": "+12155551234", "RI": "+14015551234", "SD": "+16055551234",
		"TX": "+19155551234", "UT": "+18015551234",
		"WA": "+12065551234", "WY": "+13075551234", "Navajo": "+19285551234", "Alaska": "+19075551234",
		"Hawaii": "+18085551234", "Puerto Rico": "+17875551234",
	} {
		add("us "+state, withPacks(t, number, "us"), same)
	}
	for name, number := range map[string]phone.Number{
		"ca Newfoundland": "+17095551234", "ca British Columbia": "+12505551234", "ca Yukon to Nunavut": "+18675551234",
		"gb London": "+442079460000", "fr Paris": "+33123456789",
		"fr Réunion": "+262262123456", "de Berlin": "+493012345678", "au mobile": "+61412345678", "au Sydney": "+61291234567",
		"in Delhi": "+911123456789", "default Cairo": "+20221234567",
		"default Casablanca": "+212522123456", "default Chatham": "+6433012345", "default Spanish mobile": "+34612345678",
		"default Santiago": "+56221234567", "default Tehran": "+982112345678",
	} {
		choice, _, _ := strings.Cut(name, " ")
		add(name, withPacks(t, number, choice), same)
	}
	add("toll-free in New York, with the rules of every state", withPacks(t, "+18005551234", "us"),
		func(f *gate.Facts) { f.ContactZone = zone("America/New_York") })
	add("two packs and a contact in another zone", withPacks(t, "+33123456789", "fr", "de"),
		func(f *gate.Facts) { f.ContactZone = zone("Africa/Cairo") })
	add("Lord Howe changes by half an hour", withPacks(t, "+33123456789", "default"),
		func(f *gate.Facts) { f.NumberZones, f.Place = zones(t, "Australia/Lord_Howe"), nil })
	add("a pack and an own window", withPacks(t, "+12145551234", "us"), func(f *gate.Facts) {
		f.Policy.Window.Start, f.Policy.Window.End = 13*60, 20*60+30
		f.Policy.Window.Days, _ = window.ParseDays([]string{"mon", "sat", "sun"})
	})
	add("a window in another time zone", withPacks(t, "+12145551234", "us"), func(f *gate.Facts) {
		f.Policy.Window.Start, f.Policy.Window.End, f.Policy.Timezone = 16*60, 23*60, "Europe/Berlin"
	})
	add("a window at night with an override", withPacks(t, "+12125551234", "us"), func(f *gate.Facts) {
		f.Policy.Window.Start, f.Policy.Window.End, f.Policy.Override = 60, 150, &gate.Override{Reason: "x"}
	})
	for _, name := range []string{"Antarctica/Troll", "Antarctica/Casey", "Europe/Dublin", "Asia/Gaza", "Pacific/Easter",
		"America/Nuuk", "Pacific/Kiritimati"} {
		add("default at "+name, withPacks(t, "+20221234567", "default"),
			func(f *gate.Facts) { f.NumberZones = zones(t, name) })
	}
	add("a rule that ends on a night with a clock change, and its successor", withPacks(t, "+12145551234", "us"),
		func(f *gate.Facts) {
			f.NumberZones = zones(t, "America/New_York", "Pacific/Honolulu")
			old, law := f.Rules[0], f.Rules[0]
			old.Until = window.Date{Year: 2027, Month: 3, Day: 14}
			law.From, law.Until, law.Week = old.Until, window.Date{Year: 2028, Month: 2, Day: 29}, countryrules.Week{}
			for weekday := range law.Week {
				law.Week[weekday] = []window.Range{{Start: 0, End: 90}, {Start: 23*60 + 59, End: window.Midnight}}
			}
			f.Rules = []countryrules.Rule{old, law}
		})
	add("always open until covers_until", withPacks(t, "+12145551234", "us"), func(f *gate.Facts) {
		always := f.Rules[0]
		for weekday := range always.Week {
			always.Week[weekday] = []window.Range{{Start: 0, End: window.Midnight}}
		}
		always.CoversUntil = window.Date{Year: 2027, Month: 12, Day: 31}
		f.Rules = []countryrules.Rule{always}
	})
	add("open for a minute", withPacks(t, "+12145551234"), func(f *gate.Facts) {
		f.Rules, f.Policy.Window = nil, window.Window{Start: 9 * 60, End: 9*60 + 1, Days: window.EveryDay}
	})
	add("zones with one common open minute, in summer one more hour", withPacks(t, "+12145551234"), func(f *gate.Facts) {
		f.Rules, f.Policy.Window, f.NumberZones = nil, window.Window{Start: 9*60 + 59, End: 17 * 60, Days: window.EveryDay},
			zones(t, "Asia/Kolkata", "America/New_York", "Europe/Berlin")
		f.Policy.Window.End = 20*60 + 30
	})
	add("no packs", withPacks(t, "+14155552671"), func(f *gate.Facts) { f.Policy, f.Rules = gate.DefaultPolicy(), nil })
	for name, f := range map[string]gate.Facts{"caps in Florida": withPacks(t, "+13055551234", "us"),
		"caps in France": withPacks(t, "+33123456789", "fr"), "caps in Maine": withPacks(t, "+12075551234", "us")} {
		add(name, f, func(f *gate.Facts) {
			for i := range 4 {
				f.Dials = append(f.Dials, firstMinute.Add(time.Duration(100+i*i*50)*time.Minute))
			}
		})
	}
	return cases
}

// The oracle computes for every minute of two years whether calls are allowed. The next opening
// that Evaluate returns must be the first allowed minute. The short form of the test checks all
// days with clock changes and some of the other days.
func TestEvaluate_MatchesAMinuteByMinuteSearch(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // the seed can be any number
	if set, err := strconv.ParseUint(os.Getenv("RINGFENCE_SEED"), 10, 64); err == nil {
		seed = set
	}
	var judged, searched atomic.Int64
	places, clocks := walkCases(t), &almanac{clocks: map[string]*wallClock{}}
	t.Run("walk", func(t *testing.T) {
		for name, f := range places {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := walker{
					t: t, seed: seed, f: f, oracle: newOracle(t, clocks, f),
					random: rand.New(rand.NewPCG(seed, uint64(len(name)))), //nolint:gosec // test data
				}
				w.walk()
				judged.Add(w.evaluated)
				searched.Add(w.searched)
			})
		}
	})
	t.Logf("evaluated %d minutes and %d openings in %d places, RINGFENCE_SEED=%d", judged.Load(), searched.Load(),
		len(places), seed)
}

type walker struct {
	t                   *testing.T
	seed                uint64
	f                   gate.Facts
	oracle              *oracle
	random              *rand.Rand
	evaluated, searched int64
}

func (w *walker) walk() {
	for start := 0; start < int(lastMinute.Sub(firstMinute)/time.Minute); start += minutesOfDay {
		step := 1
		if !clocksChange(w.oracle.clocks, start) {
			if w.random.IntN(100) >= percent() {
				continue
			}
			if percent() < 100 {
				step = 5
			}
		}
		before := w.oracle.isOpen(start)
		for minute := start; minute < start+minutesOfDay; minute += step {
			open := w.oracle.isOpen(minute)
			edge := open != before
			before = open
			if percent() < 100 && !edge && w.random.IntN(4) > 0 {
				continue
			}
			w.evaluate(gate.PreCheck, minute)
			if edge || w.random.IntN(16) == 0 { // the dial-time check needs one more open minute after the dial
				w.evaluate(gate.Dial, minute-w.random.IntN(2))
			}
			if w.t.Failed() {
				return
			}
		}
	}
}

func (w *walker) evaluate(stage gate.Stage, minute int) {
	minute = max(0, minute)
	w.f.Stage, w.f.DeferIfClosed = stage, true
	w.f.At = firstMinute.Add(time.Duration(minute)*time.Minute + time.Duration(w.random.IntN(60))*time.Second)
	w.evaluated++
	v, open, from := gate.Evaluate(w.f), w.oracle.isOpen(minute), w.f.At
	// the hours close within a minute after the dial, so the gate must return the next opening
	if open && stage == gate.Dial && !w.oracle.isOpen(minute+1) {
		open, minute, from = false, minute+1, from.Add(time.Minute)
	}
	if (v.Result == gate.Open) != open {
		w.t.Errorf("RINGFENCE_SEED=%d: %s at %v: oracle: open = %v, Evaluate = %+v", w.seed, stage, w.f.At, open, v)
		return
	}
	if open {
		return
	}
	w.searched++
	limit := from.Add(window.Horizon)
	opens := w.oracle.nextOpen(minute)
	// an opening of one minute is too short for a dial, so the test searches for a later opening
	for opens < len(w.oracle.computedDays)*minutesOfDay-2*minutesOfDay && !w.oracle.isOpen(opens+1) {
		opens = w.oracle.nextOpen(opens + 1)
	}
	next := firstMinute.Add(time.Duration(opens) * time.Minute)
	switch {
	case !next.After(limit) && (v.Result != gate.Deferred || !v.At.Equal(next)):
		w.t.Errorf("RINGFENCE_SEED=%d: %s: after %v the oracle's next opening = %v, Evaluate = %+v", w.seed, stage, w.f.At,
			next, v)
	case next.After(limit) && (v.Result != gate.Denied || v.Rule != gate.RuleNoOpening && v.Rule != gate.RuleExpired):
		w.t.Errorf("RINGFENCE_SEED=%d: %s: oracle: no opening within 30 days of %v, Evaluate = %+v", w.seed, stage, w.f.At, v)
	}
}

func clocksChange(clocks []*wallClock, minute int) bool {
	start := firstMinute.Add(time.Duration(minute) * time.Minute)
	for _, c := range clocks {
		if _, end := start.In(c.loc).ZoneBounds(); !end.IsZero() && end.Before(start.AddDate(0, 0, 1)) {
			return true
		}
	}
	return false
}
