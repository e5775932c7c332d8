package store_test

import (
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/dialqueue"
)

func TestApplyWorkspace_NextClaimUsesTheNewLimits(t *testing.T) {
	t.Parallel()
	const writes, due = 200, 5
	tests := []struct {
		name string
		set  func(w *dialqueue.Workspace, limit int32)
	}{
		{name: "max_live_calls", set: func(w *dialqueue.Workspace, limit int32) { w.MaxLiveCalls = limit }},
		// A workspace that has not dialed recently can dial a tenth of its calls per second immediately.
		{name: "calls_per_second", set: func(w *dialqueue.Workspace, limit int32) { w.CallsPerSecond = 10 * limit }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, workspace := newPool(t), uuid.Must(uuid.NewV7())
			writer, claimer := newStore(pool), newStore(pool)
			for n := range due {
				enqueue(t, pool, writer, aRequest(workspace, n))
			}
			for i := range writes {
				w := dialqueue.Workspace{
					WorkspaceID: workspace, Version: int64(i + 1), Status: "active", APIEnabled: true,
					MaxLiveCalls: due, CallsPerSecond: 10 * due,
				}
				want := 1 + i%due
				tt.set(&w, int32(want)) // #nosec G115 -- the value is at most five
				if err := writer.ApplyWorkspace(t.Context(), w); err != nil {
					t.Fatalf("ApplyWorkspace %d: %v", i, err)
				}
				if got := len(claimRequests(t, claimer, due)); got != want {
					t.Fatalf("requests claimed after write %d = %d, want %d", i, got, want)
				}
				for _, reset := range []string{
					"UPDATE dial_queue SET claimed_by = NULL, look_at = due_at",
					"DELETE FROM rate_buckets",
				} {
					if _, err := pool.Exec(t.Context(), reset); err != nil {
						t.Fatalf("%s: %v", reset, err)
					}
				}
			}
		})
	}
}
