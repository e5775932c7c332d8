package window_test

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence.dev/services/contacts-compliance/internal/window"
)

func zone(t interface{ Fatalf(string, ...any) }, name string) window.Zone {
	z, err := window.LoadZone(name)
	if err != nil {
		t.Fatalf("LoadZone(%s): %v", name, err)
	}
	return z
}

func openByTheClock(w window.Window, locs []*time.Location, at time.Time) bool {
	for _, loc := range locs {
		local := at.In(loc)
		shown := local.Format("15:04")
		within := shown >= w.Start.String() && shown < w.End.String()
		if !within || !w.Days.Has(local.Weekday()) {
			return false
		}
	}
	return len(locs) > 0
}

// someDays returns days with clock changes in both directions and in both hemispheres. Some changes
// occur at midnight, and one change is only half an hour.
func someDays() []time.Time {
	day := func(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }
	return []time.Time{
		day(2026, 3, 7), day(2026, 3, 8), day(2026, 10, 31), day(2026, 11, 1), // United States
		day(2026, 3, 28), day(2026, 3, 29), day(2026, 10, 24), day(2026, 10, 25), // Europe
		day(2026, 4, 4), day(2026, 4, 5), day(2026, 10, 3), day(2026, 10, 4), // Australia, Lord Howe by 30 minutes
		day(2026, 9, 5), day(2026, 4, 4), // Santiago, at midnight
		day(2026, 4, 23), day(2026, 10, 29), // Cairo, at midnight
		// days without a clock change, the end of a year, and the day that Samoa skipped
		day(2026, 6, 15), day(2026, 12, 30), day(2011, 12, 29),
	}
}

func someZones() []string {
	return []string{
		"America/New_York", "America/Los_Angeles", "Europe/Berlin", "Europe/London", "Australia/Sydney",
		"Australia/Lord_Howe",
		"America/Santiago", "Africa/Cairo", "Asia/Kolkata", "Asia/Kathmandu", "Pacific/Apia", "UTC", "America/St_Johns",
	}
}

func drawWindow(t *rapid.T) window.Window {
	days, start := rapid.IntRange(1, int(window.EveryDay)).Draw(t, "days"), rapid.IntRange(0, 1439).Draw(t, "start")
	if rapid.Bool().Draw(t, "night") { // clocks change at night
		start = rapid.IntRange(0, 240).Draw(t, "start at night")
	}
	length := rapid.IntRange(1, min(1440-start, 720)).Draw(t, "length")
	return window.Window{Start: window.Minute(start), End: window.Minute(start + length),
		Days: window.Days(days)} //nolint:gosec // fits into 7 bits
}

func TestNext_MatchesAMinuteByMinuteSearch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWindow(t)
		names := rapid.SliceOfNDistinct(rapid.SampledFrom(someZones()), 1, 3, rapid.ID[string]).Draw(t, "zones")
		locs := []*time.Location{}
		for _, name := range names {
			loc, err := time.LoadLocation(name)
			if err != nil {
				t.Fatal(err)
			}
			locs = append(locs, loc)
		}
		zones := window.Zones(locs)
		from := rapid.SampledFrom(someDays()).Draw(t, "day").Add(time.Duration(
			rapid.IntRange(0, 36*3600).Draw(t, "second")) * time.Second)

		next, ok := w.Next(zones, from)
		if got, want := w.Open(zones, from), openByTheClock(w, locs, from); got != want {
			t.Fatalf("Open(%v) = %v, want %v", from, got, want)
		}
		// this simple search covers three days: it goes to the next full minute, then from minute
		// to minute
		for at := from; at.Before(from.Add(72 * time.Hour)); at = at.Truncate(time.Minute).Add(time.Minute) {
			if !openByTheClock(w, locs, at) {
				continue
			}
			if !ok {
				t.Fatal("ok = false, want true")
			}
			if !next.Equal(at) {
				t.Fatalf("next = %v, want %v", next, at)
			}
			return
		}
		if ok && next.Before(from.Add(72*time.Hour)) {
			t.Fatalf("Next(%v) = %v, want an open time", from, next)
		}
		if ok && !openByTheClock(w, locs, next) {
			t.Fatalf("Next(%v) = %v, want an open time", from, next)
		}
	})
}

func TestNext_FindsTheOpeningAcrossClockChanges(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		instant, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return instant
	}
	tests := []struct {
		name       string
		zones      []string
		start, end window.Minute
		from, want string
	}{
		{name: "clocks go forward: 09:00 is an hour earlier in UTC", zones: []string{"America/New_York"}, start: 540,
			end: 1200, from: "2026-03-08T02:00:00Z", want: "2026-03-08T13:00:00Z"},
		{name: "clocks go back: 09:00 is an hour later in UTC", zones: []string{"America/New_York"}, start: 540, end: 1200,
			from: "2026-11-01T01:30:00Z", want: "2026-11-01T14:00:00Z"},
		{name: "a window inside the skipped hour opens on the next day", zones: []string{"America/New_York"}, start: 120,
			end: 180, from: "2026-03-08T06:00:00Z", want: "2026-03-09T06:00:00Z"},
		{name: "a window that begins in the skipped hour opens after it", zones: []string{"America/New_York"}, start: 150,
			end: 240, from: "2026-03-08T06:00:00Z", want: "2026-03-08T07:00:00Z"},
		{name: "a window in the repeated hour opens twice", zones: []string{"America/New_York"}, start: 90, end: 110,
			from: "2026-11-01T05:55:00Z", want: "2026-11-01T06:30:00Z"},
		{name: "every zone must be open", zones: []string{"America/New_York", "America/Los_Angeles"}, start: 540, end: 1200,
			from: "2026-06-15T10:00:00Z", want: "2026-06-15T16:00:00Z"},
		{name: "the end of the window is closed", zones: []string{"UTC"}, start: 540, end: 1200, from: "2026-06-15T20:00:00Z",
			want: "2026-06-16T09:00:00Z"},
		{name: "the start of the window is open", zones: []string{"UTC"}, start: 540, end: 1200, from: "2026-06-15T09:00:00Z",
			want: "2026-06-15T09:00:00Z"},
		{name: "a date that the zone skipped: Samoa, 30 December 2011",
			zones: []string{"Pacific/Apia"}, start: 540, end: 1200,
			from: "2011-12-30T08:00:00Z", want: "2011-12-30T19:00:00Z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			zones := []window.Zone{}
			for _, name := range tt.zones {
				zones = append(zones, zone(t, name))
			}
			got, ok := window.Window{Start: tt.start, End: tt.end, Days: window.EveryDay}.Next(zones, at(tt.from))
			if !ok {
				t.Error("ok = false, want true")
			} else if !got.Equal(at(tt.want)) {
				t.Error("Next = " + got.String() + ", want " + tt.want)
			}
		})
	}
}

func TestNext_ReturnsFalseWithoutAnOpeningIn30Days(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)
	w := window.Default()
	for name, zones := range map[string][]window.Zone{
		"no zone":                          nil,
		"zones without a common open hour": {zone(t, "Pacific/Honolulu"), zone(t, "Asia/Kolkata"), zone(t, "Europe/London")},
	} {
		if at, ok := w.Next(zones, from); ok {
			t.Errorf("%s: Next = %v, want none", name, at)
		}
		if w.Open(zones, from) {
			t.Errorf("%s: Open = true, want false", name)
		}
	}
}

func TestMinute_ParsesOnlyTimesOfADay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"00:00": 0, "09:30": 570, "24:00": 1440, "23:59": 1439} {
		var m window.Minute
		err := m.UnmarshalText([]byte(text))
		if err != nil {
			t.Fatalf("error = %v", err)
		}
		if got := int(m); got != want {
			t.Errorf("int(m) = %v, want %v", got, want)
		}
		if got := m.String(); got != text {
			t.Errorf("m.String() = %v, want %v", got, text)
		}
	}
	for _, text := range []string{"", "9:00", "24:01", "25:00", "12:60", "ab:cd", "-1:00", "12:00:00", "12.00", "１2:0"} {
		var m window.Minute
		if err := m.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("UnmarshalText(%q) = %s, want an error", text, m)
		}
	}
}

func TestLoadZone_RefusesNamesThatAreNotIANA(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Local", "localtime", "right/UTC", "posix/UTC", "Etc/Unknown", "Mars/Olympus",
		"../UTC", "+02:00", "Factory"} {
		if z, err := window.LoadZone(name); err == nil {
			t.Errorf("LoadZone(%q) = %v, want an error", name, z)
		}
	}
}

func TestWindow_JSONFormDecodesToTheSameWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWindow(t)
		text, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		var back window.Window
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatalf("json.Unmarshal: %v", err)
		} else if back != w {
			t.Fatalf("back = %v, want %v; text = %s", back, w, text)
		}
	})
}
