package dial_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

func TestRun_RequestOfAnUnknownAgentIsRetriedAndThenBlocked(t *testing.T) {
	t.Parallel()
	type row struct {
		State string
		Looks int
		Wait  time.Duration
	}
	tests := []struct {
		name      string
		looks     int
		wantState dialqueue.State
		wantLooks int
		wantWait  time.Duration // minimum time until the next attempt
		wantCode  string
	}{
		{
			name:      "11th attempt",
			looks:     10,
			wantState: dialqueue.Queued,
			wantLooks: 11,
			wantWait:  5500 * time.Millisecond,
		},
		{
			name:      "15th attempt",
			looks:     14,
			wantState: dialqueue.Queued,
			wantLooks: 15,
			wantWait:  7500 * time.Millisecond,
		},
		{
			name:      "16th attempt",
			looks:     15,
			wantState: dialqueue.Blocked,
			wantLooks: 15,
			wantCode:  dialqueue.CodeInvalidAgent,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.exec("UPDATE dial_queue SET agent_id = $1, looks = $2", uuid.Must(uuid.NewV7()), tt.looks)
			over := &fakeCarrier{}
			began := time.Now()
			var got row
			d.runUntil(over, func() error {
				var lookAt time.Time
				err := d.pool.QueryRow(t.Context(), "SELECT state, looks, look_at FROM dial_queue").
					Scan(&got.State, &got.Looks, &lookAt)
				got.Wait = lookAt.Sub(began)
				if err == nil && got.State == string(dialqueue.Queued) && got.Looks == tt.looks {
					err = errors.New("no attempt has ended")
				}
				return err
			})
			if got.State != string(tt.wantState) {
				t.Errorf("state = %q, want %q", got.State, tt.wantState)
			}
			if got.Looks != tt.wantLooks {
				t.Errorf("looks = %d, want %d", got.Looks, tt.wantLooks)
			}
			if got.Wait < tt.wantWait && tt.wantState == dialqueue.Queued {
				t.Errorf("next attempt after %v, want at least %v", got.Wait, tt.wantWait)
			}
			if code := d.blockedCode(t); code != tt.wantCode {
				t.Errorf("error code of the blocked event = %q, want %q", code, tt.wantCode)
			}
			if asked := len(over.originates()); asked != 0 {
				t.Errorf("originates = %d, want 0", asked)
			}
		})
	}
}

func (d *fixture) blockedCode(t *testing.T) string {
	t.Helper()
	var payloads [][]byte
	if err := d.pool.QueryRow(t.Context(), "SELECT array_agg(payload) FROM outbox").Scan(&payloads); err != nil {
		t.Fatalf("read the outbox: %v", err)
	}
	if len(payloads) == 0 {
		return ""
	}
	event := &eventv1.DialEvent{}
	if err := proto.Unmarshal(payloads[0], event); err != nil {
		t.Fatalf("decode the event: %v", err)
	}
	return event.GetBlocked().GetErrorCode()
}
