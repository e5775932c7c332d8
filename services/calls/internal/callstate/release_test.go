package callstate

import (
	"testing"

	"github.com/google/uuid"
)

func TestRelease_QueuesOnlyARequestWithoutACall(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	tests := []struct {
		name       string
		request    Request
		want       bool
		wantStatus RequestStatus
	}{
		{name: "dialing without a call", request: Request{Status: RequestDialing}, want: true, wantStatus: RequestQueued},
		{name: "dialing with a call", request: Request{Status: RequestDialing, CallID: &id}, wantStatus: RequestDialing},
		{name: "already queued", request: Request{Status: RequestQueued, DialAttempt: 1}, wantStatus: RequestQueued},
		{name: "canceled", request: Request{Status: RequestCanceled}, wantStatus: RequestCanceled},
	}
	for _, tt := range tests {
		if got := tt.request.Release(1); got != tt.want {
			t.Errorf("%s: Release = %v, want %v", tt.name, got, tt.want)
		}
		if tt.request.Status != tt.wantStatus {
			t.Errorf("%s: status = %q, want %q", tt.name, tt.request.Status, tt.wantStatus)
		}
	}
}

func TestRelease_IgnoresEventsOfOlderAttempts(t *testing.T) {
	t.Parallel()
	type event struct {
		dialing, released int32
	}
	tests := []struct {
		name   string
		events []event
		want   RequestStatus
	}{
		{name: "released once", events: []event{{dialing: 1}, {released: 1}}, want: RequestQueued},
		{name: "released after an attempt through another trunk",
			events: []event{{dialing: 1}, {released: 2}}, want: RequestQueued},
		{name: "dialed again after the release",
			events: []event{{dialing: 1}, {released: 1}, {dialing: 2}}, want: RequestDialing},
		{
			name: "repeated release of an older attempt", events: []event{{dialing: 1}, {released: 1}, {dialing: 2},
				{released: 1}},
			want: RequestDialing,
		},
		{
			name: "late release of an older attempt", events: []event{{dialing: 1}, {dialing: 2}, {released: 1}},
			want: RequestDialing,
		},
		{name: "repeated dialing event of a released attempt",
			events: []event{{dialing: 1}, {released: 1}, {dialing: 1}}, want: RequestQueued},
		{name: "dialing event that arrives after the release",
			events: []event{{released: 1}, {dialing: 1}}, want: RequestQueued},
	}
	for _, tt := range tests {
		r := Request{Status: RequestQueued}
		for _, e := range tt.events {
			if e.released > 0 {
				r.Release(e.released)
				continue
			}
			r.Dial(e.dialing)
		}
		if r.Status != tt.want {
			t.Errorf("%s: status = %q, want %q", tt.name, r.Status, tt.want)
		}
	}
}
