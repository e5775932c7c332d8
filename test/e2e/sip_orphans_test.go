package e2e

import (
	"slices"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// TestSIP_CallsOfAKilledDialerEndAndRefusedCallsUseTheNextTrunk kills the dialer while one phone is
// connected and another rings. The next process must hang up the first call, cancel the second, and
// dial no number again. A call that a trunk refuses must use the next trunk.
func TestSIP_CallsOfAKilledDialerEndAndRefusedCallsUseTheNextTrunk(t *testing.T) {
	first := sippFarm(t, kit.Script(`([0-9][0-9])`, []string{"number"},
		kit.When(10, "number", []int{1}, kit.Respond("180 Ringing")+kit.Answer()+kit.ExpectBye()),
		kit.When(20, "number", []int{2}, kit.Respond("180 Ringing")+kit.ExpectCancel()),
		kit.Respond("100 Trying")+kit.Reject("503 Service Unavailable"), kit.Over()))
	second := sippFarm(t, kit.Script(`([0-9][0-9])`, []string{"number"}, kit.Respond("180 Ringing"), kit.Answer(), kit.HangUp(10, 1200), kit.Over()))
	s, w, hooks := overSIP(t, []*kit.Sipp{first, second}, "CLAIM_LEASE=5s", "INSTANCE_LEASE=3s")
	settings := map[string]any{"script": map[string]any{"tone_hz": 440, "tone_millis": 500}}
	if err := w.Admin.Into(t.Context(), "PATCH", "/admin/v1/workspaces/"+w.ID+"/agents/"+w.AgentID, settings, 200, nil); err != nil {
		t.Fatal(err)
	}
	place := func(to string) string {
		t.Helper()
		req, err := w.Place(t.Context(), map[string]any{"to": to})
		if err != nil {
			t.Fatal(err)
		}
		return req.ID
	}
	at := func(f *kit.Sipp, to string) *kit.SippCall {
		t.Helper()
		calls, err := f.Calls()
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(calls, func(c *kit.SippCall) bool { return c.To == to }); i >= 0 {
			return calls[i]
		}
		return &kit.SippCall{}
	}
	elsewhere := place("+14155550203")
	rounds := []struct{ up, rings string }{
		{up: "+14155550101", rings: "+14155550102"},
		{up: "+14155550201", rings: "+14155550202"},
	}
	for round, number := range rounds[:sharedstack.Trials(1, len(rounds))] {
		up, rings := place(number.up), place(number.rings)
		until(t, "one phone is connected and one phone rings", func() bool {
			return !at(first, number.up).Answered.IsZero() && !at(first, number.rings).Rang.IsZero()
		})
		if round == 0 {
			until(t, "the call over the second trunk has ended", func() bool {
				req, err := w.Request(t.Context(), elsewhere)
				return err == nil && req.Final()
			})
		}
		if !s.KillOne("dialer", 0) {
			t.Fatal("there is no dialer")
		}
		killed := time.Now()
		until(t, "both calls have ended at the far end", func() bool {
			return !at(first, number.up).Over.IsZero() && !at(first, number.rings).Over.IsZero()
		})
		t.Logf("ended %s after the kill", time.Since(killed).Round(100*time.Millisecond))
		answered, ringing := at(first, number.up), at(first, number.rings)
		sharedstack.Equal(t, "BYE to the answered call", answered.HungUp, true)
		sharedstack.Equal(t, "CANCEL to the ringing call", ringing.Canceled, true)
		sharedstack.Equal(t, "dials of the answered call", answered.Dials, 1)
		sharedstack.Equal(t, "dials of the ringing call", ringing.Dials, 1)
		for _, id := range []string{up, rings} {
			var req struct {
				Status    string
				ErrorCode *string `json:"error_code"`
			}
			until(t, "the request ends", func() bool {
				err := w.API.Into(t.Context(), "GET", "/v1/call-requests/"+id, nil, 200, &req)
				return err == nil && req.Status != "dialing"
			})
			call := finishedCall(t, w, id)
			sharedstack.Equal(t, "req.Status", req.Status, "failed")
			sharedstack.Equal(t, "stage.Value(req.ErrorCode)", sharedstack.Value(req.ErrorCode), "dial_state_unknown")
			sharedstack.Equal(t, "call.Status", call.Status, "failed")
			sharedstack.Equal(t, "hangup cause", sharedstack.Value(call.HangupCause), "unspecified")
			sharedstack.Equal(t, "call.CreditsCharged", call.CreditsCharged, "")
		}
	}
	refused, taken, call := at(first, "+14155550203"), at(second, "+14155550203"), finishedCall(t, w, elsewhere)
	sharedstack.Equal(t, "refused.Dials", refused.Dials, 1)
	sharedstack.Equal(t, "refused.Refused", refused.Refused, 503)
	sharedstack.Equal(t, "refused.Rang.IsZero()", refused.Rang.IsZero(), true)
	sharedstack.Equal(t, "taken.Dials", taken.Dials, 1)
	if taken.CallID == refused.CallID {
		t.Errorf("taken.CallID = %v, want another value", taken.CallID)
	}
	sharedstack.Equal(t, "call.CallID", call.CallID, taken.CallID)
	sharedstack.Equal(t, "call.Status", call.Status, "completed")
	calls, err := first.Calls()
	if err != nil {
		t.Errorf("Calls: %v", err)
	} else if len(calls)%2 != 1 {
		t.Errorf("number of calls modulo 2 = %v, want 1", len(calls)%2)
	}
	until(t, "every terminal event has arrived", func() bool {
		delivered := types(hooks, "/"+w.ID)
		return count(delivered, "call.failed") == len(calls)-1 && count(delivered, "call.completed") == 1
	})
	if differences, err := w.Differences(t.Context()); err != nil {
		t.Errorf("the books: Differences: %v", err)
	} else if len(differences) > 0 {
		t.Errorf("the books: differences = %v, want none", differences)
	}
}

func count(all []string, one string) (n int) {
	for _, each := range all {
		if each == one {
			n++
		}
	}
	return n
}
