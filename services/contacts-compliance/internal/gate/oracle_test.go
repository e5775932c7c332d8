package gate_test

import (
	"math/bits"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

var (
	firstMinute = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	lastMinute  = firstMinute.AddDate(2, 0, 0)
	// searchEnd is later than every opening that the gate can return.
	searchEnd = lastMinute.AddDate(0, 0, 32)
)

const minutesOfDay = 1440

type day struct {
	year  int
	month time.Month
	day   int
}

// dayPart is a part of a UTC day. In this part, the wall clock of a zone advances without a jump,
// and the local date stays the same.
type dayPart struct {
	from, until int // minutes of the UTC day; until is the first minute after the part
	localMinute int // local time at the start of the part, in minutes after 00:00
	date        string
	weekday     time.Weekday
	day         day
}

// wallClock returns the local time of one zone for each minute. The results are cached by UTC day.
type wallClock struct {
	loc  *time.Location
	mu   sync.Mutex
	days map[int][]dayPart
}

type almanac struct {
	mu     sync.Mutex
	clocks map[string]*wallClock
}

func (a *almanac) clock(t testing.TB, name string) *wallClock {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clocks[name] == nil {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		a.clocks[name] = &wallClock{loc: loc, days: map[int][]dayPart{}}
	}
	return a.clocks[name]
}

// dayParts divides the n-th UTC day after firstMinute at midnight and at each change of the local
// clock.
func (c *wallClock) dayParts(n int) []dayPart {
	c.mu.Lock()
	defer c.mu.Unlock()
	if read, ok := c.days[n]; ok {
		return read
	}
	var read []dayPart
	var text []byte
	last := ""
	for minute := range minutesOfDay {
		local := firstMinute.Add(time.Duration(n*minutesOfDay+minute) * time.Minute).In(c.loc)
		text = local.AppendFormat(text[:0], "2006-01-02 15:04")
		shows := int(text[11]-'0')*600 + int(text[12]-'0')*60 + int(text[14]-'0')*10 + int(text[15]-'0')
		goesOn := len(read) > 0 && string(text[:10]) == last &&
			shows == read[len(read)-1].localMinute+minute-read[len(read)-1].from
		if !goesOn {
			last = string(text[:10])
			read = append(read, dayPart{from: minute, localMinute: shows, date: last, weekday: local.Weekday(),
				day: day{local.Year(), local.Month(), local.Day()}})
		}
		read[len(read)-1].until = minute + 1
	}
	c.days[n] = read
	return read
}

// oracle evaluates the hours minute by minute, with a list of the holidays of each year. It is slow
// but simple, and shares no code with package gate.
type oracle struct {
	f               gate.Facts
	clocks          []*wallClock
	own             []*wallClock
	holidays        []map[day]bool // one map for each rule
	dates           []ruleTexts    // one element for each rule
	closedBits      []uint64       // one bit for each minute: 1 if the minute is closed
	computedDays    []bool         // true for each UTC day whose bits are computed
	searched, found int
}

type ruleTexts struct{ covers, from, until string }

func newOracle(t testing.TB, clocks *almanac, f gate.Facts) *oracle {
	t.Helper()
	minutes := int(searchEnd.Sub(firstMinute) / time.Minute)
	o := &oracle{f: f, computedDays: make([]bool, minutes/minutesOfDay+2)} // the last day is never searched
	o.closedBits = make([]uint64, len(o.computedDays)*minutesOfDay/64+1)
	names := map[string]bool{}
	for _, z := range f.NumberZones {
		names[z.String()] = true
	}
	if f.ContactZone != nil {
		names[f.ContactZone.String()] = true
	}
	for name := range names {
		o.clocks = append(o.clocks, clocks.clock(t, name))
	}
	o.own = o.clocks
	if f.Policy.Timezone != gate.RecipientTimezone {
		o.own = []*wallClock{clocks.clock(t, f.Policy.Timezone)}
	}
	for _, r := range f.Rules {
		days := map[day]bool{}
		for _, h := range r.Holidays {
			for year := 2025; year <= 2029; year++ {
				addHoliday(days, h, year)
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

// easters contains the dates of Easter Sunday from a published table.
var easters = map[int]time.Time{
	2025: time.Date(2025, 4, 20, 0, 0, 0, 0, time.UTC), 2026: time.Date(2026, 4, 5, 0, 0, 0, 0, time.UTC),
	2027: time.Date(2027, 3, 28, 0, 0, 0, 0, time.UTC),
	2028: time.Date(2028, 4, 16, 0, 0, 0, 0, time.UTC), 2029: time.Date(2029, 4, 1, 0, 0, 0, 0, time.UTC),
}

func addHoliday(days map[day]bool, h countryrules.Holiday, year int) {
	var at time.Time
	switch {
	case h.Easter != nil:
		at = easters[year].AddDate(0, 0, *h.Easter)
	case h.Weekday != "":
		for at = time.Date(year, h.Month, h.OnOrAfter, 0, 0, 0, 0,
			time.UTC); !strings.HasPrefix(strings.ToLower(at.Weekday().String()), h.Weekday); {
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

// isOpen reports whether all hours are open. The minute is counted from firstMinute.
func (o *oracle) isOpen(minute int) bool {
	if n := minute / minutesOfDay; !o.computedDays[n] {
		o.computedDays[n] = true
		o.computeDay(n)
	}
	return o.closedBits[minute/64]&(1<<(minute%64)) == 0
}

// nextOpen returns the next open minute, or a minute after searchEnd if there is none.
func (o *oracle) nextOpen(minute int) int {
	if minute < o.searched || minute > o.found {
		o.searched, o.found = minute, minute
	}
	for end := (len(o.computedDays) - 1) * minutesOfDay; o.found < end && !o.isOpen(o.found); {
		// this 64-bit word ends in a day that is not computed yet
		if !o.computedDays[(o.found|63)/minutesOfDay] {
			o.found++
			continue
		}
		shut := bits.TrailingZeros64(^o.closedBits[o.found/64] >> (o.found % 64))
		o.found += min(max(1, shut), 64-o.found%64)
	}
	return o.found
}

func (o *oracle) close(minute int) { o.closedBits[minute/64] |= 1 << (minute % 64) }

func (o *oracle) computeDay(n int) {
	if w := o.f.Policy.Window; w != (window.Window{Start: 0, End: minutesOfDay, Days: window.EveryDay}) {
		for _, c := range o.own {
			for _, s := range c.dayParts(n) {
				o.closeOutside(n, s, func(shows int) bool {
					return w.Days.Has(s.weekday) && shows >= int(w.Start) &&
						shows < int(w.End)
				})
			}
		}
	}
	for i, r := range o.f.Rules {
		o.lookAtCaps(n, r)
		if o.f.Policy.Override != nil {
			continue
		}
		for _, c := range o.clocks {
			for _, s := range c.dayParts(n) {
				all, ranges := within(r, o.dates[i], o.holidays[i], s)
				o.closeOutside(n, s, func(shows int) bool {
					for _, open := range ranges {
						if shows >= int(open.Start) && shows < int(open.End) {
							return true
						}
					}
					return all
				})
			}
		}
	}
}

func (o *oracle) closeOutside(n int, s dayPart, open func(shows int) bool) {
	for minute := s.from; minute < s.until; minute++ {
		if !open(s.localMinute + minute - s.from) {
			o.close(n*minutesOfDay + minute)
		}
	}
}

func (o *oracle) lookAtCaps(n int, r countryrules.Rule) {
	for _, c := range r.Caps {
		for minute := n * minutesOfDay; minute < (n+1)*minutesOfDay; minute++ {
			within, at := 0, firstMinute.Add(time.Duration(minute)*time.Minute)
			for _, dial := range o.f.Dials {
				if at.Sub(dial) < time.Duration(c.Hours)*time.Hour {
					within++
				}
			}
			if within >= c.Calls {
				o.close(minute)
			}
		}
	}
}

func within(r countryrules.Rule, texts ruleTexts, holidays map[day]bool, s dayPart) (all bool, ranges []window.Range) {
	switch {
	case s.date > texts.covers:
		return false, nil
	case s.date < texts.from || texts.until != "" && s.date >= texts.until:
		return true, nil
	case holidays[s.day]:
		return false, r.HolidayHours
	default:
		return false, r.Week[s.weekday]
	}
}
