package gate_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/pack"
	"ringfence.dev/services/contacts-compliance/internal/policy"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// The two years that every pack is walked through, minute by minute.
var (
	firstMinute = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	lastMinute  = firstMinute.AddDate(2, 0, 0)
)

// percent is how much of the walk is made: one in a hundred days and every day on which a clock changes, or all of it (`make prove`).
func percent() int {
	if n, err := strconv.Atoi(os.Getenv("RINGFENCE_TRIALS")); err == nil {
		return n
	}
	return 1
}

// day is a local date as the oracle sees it.
type day struct {
	year  int
	month time.Month
	day   int
}

// oracle is the slow truth: what the wall clocks of all zones show, minute by minute, looked up in lists of holidays written out year by
// year. It shares no step with the gate.
type oracle struct {
	f        gate.Facts
	locs     []*time.Location
	own      []*time.Location
	holidays []map[day]bool // by rule
	dates    []ruleTexts    // by rule
	seen     []byte         // by minute: 0 not looked at, 1 open, 2 closed
}

func newOracle(t testing.TB, f gate.Facts) *oracle {
	t.Helper()
	o := &oracle{f: f, seen: make([]byte, int(lastMinute.AddDate(0, 0, 32).Sub(firstMinute)/time.Minute))}
	names := map[string]bool{}
	for _, z := range f.NumberZones {
		names[z.String()] = true
	}
	if f.ContactZone != nil {
		names[f.ContactZone.String()] = true
	}
	for name := range names {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		o.locs = append(o.locs, loc)
	}
	o.own = o.locs
	if f.Policy.Timezone != policy.Recipient {
		loc, err := time.LoadLocation(f.Policy.Timezone)
		if err != nil {
			t.Fatal(err)
		}
		o.own = []*time.Location{loc}
	}
	for _, r := range f.Rules {
		days := map[day]bool{}
		for _, h := range r.Holidays {
			for year := 2025; year <= 2029; year++ {
				writeOut(days, h, year)
			}
		}
		o.holidays = append(o.holidays, days)
		texts := ruleTexts{covers: r.CoversUntil.String(), from: r.From.String()}
		if !r.Until.IsZero() {
			texts.until = r.Until.String()
		}
		o.dates = append(o.dates, texts)
	}
	return o
}

// ruleTexts are the dates of a rule as they are written.
type ruleTexts struct{ covers, from, until string }

// Easter Sundays as almanacs have them.
var easters = map[int]time.Time{
	2025: time.Date(2025, 4, 20, 0, 0, 0, 0, time.UTC), 2026: time.Date(2026, 4, 5, 0, 0, 0, 0, time.UTC), 2027: time.Date(2027, 3, 28, 0, 0, 0, 0, time.UTC),
	2028: time.Date(2028, 4, 16, 0, 0, 0, 0, time.UTC), 2029: time.Date(2029, 4, 1, 0, 0, 0, 0, time.UTC),
}

func writeOut(days map[day]bool, h pack.Holiday, year int) {
	var at time.Time
	switch {
	case h.Easter != nil:
		at = easters[year].AddDate(0, 0, *h.Easter)
	case h.Weekday != "":
		for at = time.Date(year, h.Month, h.OnOrAfter, 0, 0, 0, 0, time.UTC); !strings.HasPrefix(strings.ToLower(at.Weekday().String()), h.Weekday); {
			at = at.AddDate(0, 0, 1)
		}
	default:
		at = time.Date(year, h.Month, h.Day, 0, 0, 0, 0, time.UTC)
	}
	days[day{at.Year(), at.Month(), at.Day()}] = true
	for weekday, by := range h.Observed {
		if strings.HasPrefix(strings.ToLower(at.Weekday().String()), weekday) {
			moved := at.AddDate(0, 0, by)
			days[day{moved.Year(), moved.Month(), moved.Day()}] = true
		}
	}
}

func (o *oracle) open(at time.Time) bool {
	minute := int(at.Sub(firstMinute) / time.Minute)
	if o.seen[minute] == 0 {
		o.seen[minute] = 2
		if o.look(at) {
			o.seen[minute] = 1
		}
	}
	return o.seen[minute] == 1
}

// shown is what one wall clock shows.
type shown struct {
	date, time string
	weekday    time.Weekday
	day        day
}

func (o *oracle) look(at time.Time) bool {
	clocks := make([]shown, 0, len(o.locs))
	for _, loc := range o.locs {
		local := at.In(loc)
		text := local.Format("2006-01-02 15:04")
		clocks = append(clocks, shown{text[:10], text[11:], local.Weekday(), day{local.Year(), local.Month(), local.Day()}})
	}
	if w := o.f.Policy.Window; w != (window.Window{Start: 0, End: 1440, Days: window.EveryDay}) {
		for _, loc := range o.own {
			local := at.In(loc)
			if shown := local.Format("15:04"); !w.Days.Has(local.Weekday()) || shown < w.Start.String() || shown >= w.End.String() {
				return false
			}
		}
	}
	for i, r := range o.f.Rules {
		for _, c := range r.Caps {
			within := 0
			for _, dial := range o.f.Dials {
				if at.Sub(dial) < time.Duration(c.Hours)*time.Hour {
					within++
				}
			}
			if within >= c.Calls {
				return false
			}
		}
		if o.f.Policy.Override != nil {
			continue
		}
		for _, clock := range clocks {
			if !within(r, o.dates[i], o.holidays[i], clock) {
				return false
			}
		}
	}
	return true
}

func within(r pack.Rule, texts ruleTexts, holidays map[day]bool, clock shown) bool {
	if clock.date > texts.covers {
		return false
	}
	if clock.date < texts.from || texts.until != "" && clock.date >= texts.until {
		return true
	}
	ranges := r.Week[clock.weekday]
	if holidays[clock.day] {
		ranges = r.HolidayHours
	}
	for _, open := range ranges {
		if clock.time >= open.Start.String() && clock.time < open.End.String() {
			return true
		}
	}
	return false
}

// walks are numbers of every pack, of every region with rules, and of the oddest clocks.
func walks(t testing.TB) map[string]gate.Facts {
	cases := map[string]gate.Facts{}
	add := func(name string, f gate.Facts, change func(*gate.Facts)) {
		change(&f)
		cases[name] = f
	}
	same := func(*gate.Facts) {}
	zone := func(name string) *window.Zone { return &zones(t, name)[0] }
	for state, number := range map[string]phone.Number{
		"AL": "+12055551234", "CT": "+12035551234", "FL panhandle": "+18505551234", "IL": "+12175551234", "KY": "+12705551234", "LA": "+12255551234", "MA": "+16175551234",
		"MD": "+13015551234", "ME": "+12075551234", "MI": "+19065551234", "MN": "+12185551234", "MS": "+16015551234", "NE": "+13085551234", "NM": "+15055551234",
		"NV": "+17755551234", "OK": "+14055551234", "PA": "+12155551234", "RI": "+14015551234", "SD": "+16055551234", "TX": "+19155551234", "UT": "+18015551234",
		"WA": "+12065551234", "WY": "+13075551234", "Navajo": "+19285551234", "Alaska": "+19075551234", "Hawaii": "+18085551234", "Puerto Rico": "+17875551234",
	} {
		add("us "+state, held(t, number, "us"), same)
	}
	for name, number := range map[string]phone.Number{
		"ca Newfoundland": "+17095551234", "ca British Columbia": "+12505551234", "ca Yukon to Nunavut": "+18675551234", "gb London": "+442079460000", "fr Paris": "+33123456789",
		"fr Réunion": "+262262123456", "de Berlin": "+493012345678", "au mobile": "+61412345678", "au Sydney": "+61291234567", "in Delhi": "+911123456789", "default Cairo": "+20221234567",
		"default Casablanca": "+212522123456", "default Chatham": "+6433012345", "default Spanish mobile": "+34612345678", "default Santiago": "+56221234567", "default Tehran": "+982112345678",
	} {
		choice, _, _ := strings.Cut(name, " ")
		add(name, held(t, number, choice), same)
	}
	add("toll-free in New York, held to every state", held(t, "+18005551234", "us"), func(f *gate.Facts) { f.ContactZone = zone("America/New_York") })
	add("two packs and a contact elsewhere", held(t, "+33123456789", "fr", "de"), func(f *gate.Facts) { f.ContactZone = zone("Africa/Cairo") })
	add("Lord Howe changes by half an hour", held(t, "+33123456789", "default"), func(f *gate.Facts) { f.NumberZones, f.Place = zones(t, "Australia/Lord_Howe"), nil })
	add("its own window too", held(t, "+12145551234", "us"), func(f *gate.Facts) {
		f.Policy.Window.Start, f.Policy.Window.End = 13*60, 20*60+30
		f.Policy.Window.Days, _ = window.ParseDays([]string{"mon", "sat", "sun"})
	})
	add("its own window by another clock", held(t, "+12145551234", "us"), func(f *gate.Facts) {
		f.Policy.Window.Start, f.Policy.Window.End, f.Policy.Timezone = 16*60, 23*60, "Europe/Berlin"
	})
	add("a window at night, overriding", held(t, "+12125551234", "us"), func(f *gate.Facts) {
		f.Policy.Window.Start, f.Policy.Window.End, f.Policy.Override = 60, 150, &policy.Override{Reason: "x"}
	})
	add("no packs", held(t, "+14155552671"), func(f *gate.Facts) { f.Policy, f.Rules = policy.Default(), nil })
	for name, f := range map[string]gate.Facts{"caps in Florida": held(t, "+13055551234", "us"), "caps in France": held(t, "+33123456789", "fr"), "caps in Maine": held(t, "+12075551234", "us")} {
		add(name, f, func(f *gate.Facts) {
			for i := range 4 {
				f.Dials = append(f.Dials, firstMinute.Add(time.Duration(100+i*i*50)*time.Minute))
			}
		})
	}
	return cases
}

// TestJudge_IsWhatAMinuteByMinuteWalkFinds: over two years, for every pack, on the days when clocks change as on any other, a call is open exactly when the
// slow truth is, and the next opening is the first minute that is open.
func TestJudge_IsWhatAMinuteByMinuteWalkFinds(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number will do
	if set, err := strconv.ParseUint(os.Getenv("RINGFENCE_SEED"), 10, 64); err == nil {
		seed = set
	}
	var judged, searched atomic.Int64
	places := walks(t)
	t.Run("walk", func(t *testing.T) {
		for name, f := range places {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				minutes, openings := walk(t, seed, name, f)
				judged.Add(minutes)
				searched.Add(openings)
			})
		}
	})
	t.Logf("%d minutes judged, %d openings searched in %d places, RINGFENCE_SEED=%d", judged.Load(), searched.Load(), len(places), seed)
}

// walk goes through the two years of one place.
func walk(t *testing.T, seed uint64, name string, f gate.Facts) (judged, searched int64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, uint64(len(name)))) //nolint:gosec // a test's
	o := newOracle(t, f)
	for start := firstMinute; start.Before(lastMinute); start = start.AddDate(0, 0, 1) {
		step := time.Minute
		if !clocksChange(o.locs, start) {
			if random.IntN(100) >= percent() {
				continue
			}
			if percent() < 100 { // any five minutes of an ordinary day are much alike
				step *= 5
			}
		}
		before := o.open(start)
		for at := start; at.Before(start.AddDate(0, 0, 1)); at = at.Add(step) {
			open := o.open(at)
			if percent() < 100 && open == before && random.IntN(4) > 0 {
				continue
			}
			f.Stage, f.At, f.Waits = gate.PreCheck, at.Add(time.Duration(random.IntN(60))*time.Second), true
			if v := gate.Judge(f); (v.Result == gate.Open) != open {
				t.Fatalf("RINGFENCE_SEED=%d: at %v the walk says open=%v, Judge %+v", seed, f.At, open, v)
			} else if !open && (open != before || random.IntN(97) == 0) {
				next(t, fmt.Sprintf("RINGFENCE_SEED=%d", seed), o, f, v)
				searched++
			}
			judged++
			before = open
		}
	}
	return judged, searched
}

// clocksChange says whether one of the clocks is put forth or back within a day of start.
func clocksChange(locs []*time.Location, start time.Time) bool {
	for _, loc := range locs {
		if _, end := start.In(loc).ZoneBounds(); !end.IsZero() && end.Before(start.AddDate(0, 0, 1)) {
			return true
		}
	}
	return false
}

// next holds the verdict's opening against the walk: it is open, and nothing before it is.
func next(t *testing.T, name string, o *oracle, f gate.Facts, v gate.Verdict) {
	t.Helper()
	for at := f.At.Truncate(time.Minute).Add(time.Minute); !at.After(f.At.Add(window.Horizon)); at = at.Add(time.Minute) {
		if !o.open(at) {
			continue
		}
		if v.Result != gate.Later || !v.At.Equal(at) {
			t.Fatalf("%s: after %v the first open minute is %v, Judge %+v", name, f.At, at, v)
		}
		return
	}
	if v.Result != gate.Closed || v.Rule != gate.RuleNoOpening && v.Rule != gate.RuleExpired {
		t.Fatalf("%s: no minute is open within 30 days of %v, Judge %+v", name, f.At, v)
	}
}
