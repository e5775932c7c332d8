package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestCreate_RefusesScheduledForOutsideItsLimits(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	r := newRig(t)
	now := time.Now().UTC().Truncate(time.Millisecond)
	tests := []struct {
		name string
		sent string
		// want is zero if the request must be refused. It is in the past if the call must be due
		// immediately.
		want time.Time
	}{
		{
			name: "a minute in the past is now", sent: now.Add(-time.Minute).Format(time.RFC3339Nano),
			want: now.Add(-time.Minute),
		},
		{
			name: "almost 7 days in the past is now", sent: now.Add(-7*day + time.Hour).Format(time.RFC3339Nano),
			want: now.Add(-7 * day),
		},
		{name: "more than 7 days in the past", sent: now.Add(-7*day - time.Second).Format(time.RFC3339Nano)},
		{name: "the zero value of Go", sent: "0001-01-01T00:00:00Z"},
		{name: "the zero value of Unix", sent: "1970-01-01T00:00:00Z"},
		{name: "a year with a wrong digit", sent: "0830-11-07T10:56:11Z"},
		{name: "an hour ahead", sent: now.Add(time.Hour).Format(time.RFC3339Nano), want: now.Add(time.Hour)},
		{
			name: "almost 366 days ahead", sent: now.Add(366*day - time.Minute).Format(time.RFC3339Nano),
			want: now.Add(366*day - time.Minute),
		},
		{name: "more than 366 days ahead", sent: now.Add(367 * day).Format(time.RFC3339Nano)},
		{name: "a time without an offset", sent: "2027-06-04T09:00:00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := r.do(http.MethodPost, "/v1/calls", r.order("scheduled_for", tt.sent))
			if tt.want.IsZero() {
				wantScheduledForRefused(t, got)
				return
			}
			if got.status != http.StatusAccepted {
				t.Fatalf("status = %d, want 202: %v", got.status, got.body)
			}
			text, _ := got.body["scheduled_for"].(string)
			at, err := time.Parse("2006-01-02T15:04:05.999Z", text)
			if err != nil {
				t.Fatalf("scheduled_for = %q, want UTC: %v", text, err)
			}
			if tt.want.After(now) {
				if !at.Equal(tt.want) {
					t.Errorf("scheduled_for = %s, want %s", at, tt.want)
				}
				return
			}
			if at.Before(now) {
				t.Errorf("scheduled_for = %s, want the time of the request, at least %s", at, now)
			}
			if latest := time.Now(); at.After(latest) {
				t.Errorf("scheduled_for = %s, want the time of the request, at most %s", at, latest)
			}
		})
	}
}

func wantScheduledForRefused(t *testing.T, got answer) {
	t.Helper()
	if got.status != http.StatusUnprocessableEntity {
		t.Errorf("status = %d, want 422", got.status)
	}
	if got.code() != "validation_error" {
		t.Errorf("code = %q, want validation_error", got.code())
	}
	if !strings.HasPrefix(got.message(), "scheduled_for ") {
		t.Errorf("message = %q, want it to name scheduled_for", got.message())
	}
}

func TestScheduledFor_ErrorForAPastTimeNamesTheRemedy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := r.do(http.MethodPost, "/v1/calls", r.order("scheduled_for", "0830-11-07T10:56:11Z"))
	const want = "scheduled_for is more than 7 days in the past. Leave it out to call now, or send a time in the future."
	if got.message() != want {
		t.Errorf("message = %q, want %q", got.message(), want)
	}
}
