package call

import (
	"testing"

	"github.com/google/uuid"
)

func TestRelease_OnlyBeforeACall(t *testing.T) {
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
		{name: "queued", request: Request{Status: RequestQueued}, wantStatus: RequestQueued},
		{name: "canceled", request: Request{Status: RequestCanceled}, wantStatus: RequestCanceled},
	}
	for _, tt := range tests {
		if got := tt.request.Release(); got != tt.want {
			t.Errorf("%s: Release = %v, want %v", tt.name, got, tt.want)
		}
		if tt.request.Status != tt.wantStatus {
			t.Errorf("%s: status = %q, want %q", tt.name, tt.request.Status, tt.wantStatus)
		}
	}
}
