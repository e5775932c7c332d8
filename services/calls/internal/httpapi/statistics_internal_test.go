package httpapi

import (
	"net/url"
	"testing"
	"time"
)

func TestStatistics_IntervalsBeginAtHoursAndDaysOfTheTimeZone(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, query string
		first, last string
		want        int
	}{
		{"the last day by default", "", "2026-03-09T12:00:00Z", "2026-03-10T12:00:00Z", 25},
		{
			"hours on the day when the clocks go forward",
			"time_zone=America/New_York&created_after=2026-03-08T05:00:00Z&created_before=2026-03-09T04:00:00Z",
			"2026-03-08T00:00:00-05:00", "2026-03-08T23:00:00-04:00", 23,
		},
		{
			"hours on the day when the clocks go back",
			"time_zone=America/New_York&created_after=2026-11-01T04:00:00Z&created_before=2026-11-02T05:00:00Z",
			"2026-11-01T00:00:00-04:00", "2026-11-01T23:00:00-05:00", 25,
		},
		{
			"the hour that occurs twice, the second time",
			"time_zone=America/New_York&created_after=2026-11-01T06:30:00Z&created_before=2026-11-01T07:00:00Z",
			"2026-11-01T01:00:00-05:00", "2026-11-01T01:00:00-05:00", 1,
		},
		{
			"days on both sides of a change of the clocks",
			"time_zone=America/New_York&interval=day&created_after=2026-03-07T17:00:00Z&created_before=2026-03-09T17:00:00Z",
			"2026-03-07T00:00:00-05:00", "2026-03-09T00:00:00-04:00", 3,
		},
		{
			"a zone with half an hour",
			"time_zone=Asia/Kolkata&created_after=2026-03-07T00:00:00Z&created_before=2026-03-07T01:00:00Z",
			"2026-03-07T05:00:00+05:30", "2026-03-07T06:00:00+05:30", 2,
		},
	}
	for _, test := range tests {
		query, err := url.ParseQuery(test.query)
		if err != nil {
			t.Fatal(err)
		}
		p, err := readPeriod(query, time.Date(2026, 3, 10, 12, 34, 0, 0, time.UTC))
		if err != nil {
			t.Fatalf("%s: readPeriod: %v", test.name, err)
		}
		starts, err := p.starts()
		if err != nil || len(starts) != test.want {
			t.Fatalf("%s: starts = %v, %v, want %d", test.name, starts, err, test.want)
		}
		if got := starts[0].Format(time.RFC3339); got != test.first {
			t.Errorf("%s: first start = %s, want %s", test.name, got, test.first)
		}
		if got := starts[len(starts)-1].Format(time.RFC3339); got != test.last {
			t.Errorf("%s: last start = %s, want %s", test.name, got, test.last)
		}
	}
}

func TestReadPeriod_RefusesInvalidQueries(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for _, text := range []string{
		"interval=minute", "time_zone=Mars/Olympus", "time_zone=Local", "time_zone=", "time_zone=../../etc/passwd",
		"created_after=2026-03-10T12:00:00Z", "created_after=yesterday", "created_after=2025-01-01T00:00:00Z&interval=day",
	} {
		query, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readPeriod(query, now); err == nil {
			t.Errorf("readPeriod(%s) = nil, want an error", text)
		}
	}
	query := url.Values{"created_after": {"2026-02-01T00:00:00Z"}}
	p, err := readPeriod(query, now)
	if err != nil {
		t.Fatal(err)
	}
	if starts, err := p.starts(); err == nil {
		t.Errorf("starts of %d hours = nil, want an error", len(starts))
	}
}
