package operator

import (
	"slices"
	"testing"
	"time"
)

func TestTime_ParsesTimesAndAges(t *testing.T) {
	noon := time.Date(2026, 6, 4, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"2026-06-04T09:00:00Z":          time.Date(2026, 6, 4, 9, 0, 0, 0, time.UTC),
		"2026-06-04T09:00:00.5+02:00":   time.Date(2026, 6, 4, 7, 0, 0, 5e8, time.UTC),
		"2026-06-04 12:00":              noon,
		"2026-06-04T12:00:00":           noon,
		"2026-06-04":                    noon.Add(-12 * time.Hour),
		noon.Format(timeLayout):         noon,
		noon.UTC().Format(time.RFC3339): noon,
	} {
		var got Time
		if err := got.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: error = %v, want nil", text, err)
		}
		if !got.Equal(want) {
			t.Errorf("%s = %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "2h": 2 * time.Hour, "3d": 72 * time.Hour, "1w": 168 * time.Hour,
	} {
		var got Time
		before := time.Now()
		err := got.UnmarshalText([]byte(text))
		if err != nil {
			t.Errorf("%s: error = %v, want nil", text, err)
		}
		if age := before.Sub(got.Time); age > want || age < want-time.Minute {
			t.Errorf("%s is %v before now, want %v", text, age, want)
		}
	}
	for _, text := range []string{"", "yesterday", "2h30m", "-2h", "2026-06", "12:00", "99999w"} {
		var got Time
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q = %v, want an error", text, got)
		}
	}
}

// The server cannot filter most lists by time. The client then selects the items by the time in
// their ids, and stops at the first item that is too old.
func TestList_ReturnsOnlyItemsOfTheGivenPeriod(t *testing.T) {
	at := time.Date(2026, 6, 4, 9, 0, 0, 0, time.UTC)
	served := &collection{}
	for n := range 350 {
		served.ids = append(served.ids, newID(at.Add(-time.Duration(n)*time.Minute), n))
	}
	minutes := func(n int) Time { return Time{at.Add(-time.Duration(n) * time.Minute)} }
	for _, test := range []struct {
		name     string
		want     Listed
		from, to int
		requests int
		more     bool
	}{
		{name: "after", want: Listed{Limit: 100, After: minutes(5)}, from: 0, to: 5, requests: 1},
		{name: "before", want: Listed{Limit: 100, Before: minutes(340)}, from: 341, to: 350, requests: 4},
		{name: "both", want: Listed{All: true, After: minutes(130), Before: minutes(120)}, from: 121, to: 130, requests: 2},
		{name: "limit", want: Listed{Limit: 3, Before: minutes(120)}, from: 121, to: 124, requests: 2, more: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, _ := open(t, false, served.ServeHTTP)
			served.asked = nil
			var got []string
			more := false
			for page, err := range d.yieldPages(t.Context(), At("things"), nil, test.want) {
				if err != nil {
					t.Fatal(err)
				}
				for _, item := range page.Data {
					got = append(got, string(item))
				}
				more = page.HasMore
			}
			var want []string
			for _, id := range served.ids[test.from:test.to] {
				want = append(want, `{"id":"`+id+`"}`)
			}
			if !slices.Equal(got, want) {
				t.Errorf("items = %q, want %q", got, want)
			}
			if more != test.more {
				t.Errorf("more = %v, want %v", more, test.more)
			}
			if len(served.asked) != test.requests {
				t.Errorf("requests = %d, want %d", len(served.asked), test.requests)
			}
		})
	}
	served.ids = []string{"7"}
	d, _ := open(t, false, served.ServeHTTP)
	err := d.List(t.Context(), At("things"), nil, Listed{Limit: 1, After: minutes(1)}, "id")
	wantError(t, err, "contains no time", "\n")
}
