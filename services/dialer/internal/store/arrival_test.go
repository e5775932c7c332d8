package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/store"
)

// The dialer answers a call only if the call has a row.
func TestApplyEvents_InboundCallOfASuspendedWorkspaceIsNotStored(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	place, _, err := st.ClaimEventStream(t.Context(), "sim")
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		status, number string
		taken          bool
	}{{status: "active", number: "+14155550171", taken: true}, {status: "suspended", number: "+14155550172",
		taken: false}} {
		workspace, agent, id := uuid.New(), uuid.New(), uuid.New()
		for sql, args := range map[string][]any{
			"INSERT INTO workspaces (workspace_id, version, status, api_enabled, max_live_calls, calls_per_second, destinations) VALUES ($1, 1, $2, true, 10, 10, '{}')": {workspace, test.status},
			"INSERT INTO agents (agent_id, workspace_id, version, name, from_e164, max_call_seconds, deleted) VALUES ($1, $2, 1, 'Ada', '', 60, false)":                  {agent, workspace},
			"INSERT INTO numbers (number_id, workspace_id, phone_e164, agent_id) VALUES ($1, $2, $3, $4)":                                                                {uuid.New(), workspace, test.number, agent},
		} {
			if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
				t.Fatal(err)
			}
		}
		taken := false
		next := store.StreamPosition{Stream: "a", Cursor: int64(i + 1)}
		events := store.Events{
			Guard: st.MoveStreamPosition("sim", place, next), Calls: []uuid.UUID{id},
			Arrived: []store.Arrived{{CallID: id, From: "+14155550199", To: test.number, RingingAt: time.Now()}},
			Fold: func(calls map[uuid.UUID]*callstate.Call, _ bool) (store.Folded, error) {
				taken = calls[id] != nil
				return store.Folded{}, nil
			},
		}
		if err := st.ApplyEvents(t.Context(), events); err != nil {
			t.Fatal(err)
		}
		place = next
		if taken != test.taken {
			t.Errorf("inbound call to a workspace that is %s: stored = %v", test.status, taken)
		}
	}
}
