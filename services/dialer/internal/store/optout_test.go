package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

func TestChange_OutcomeOptedOutStoresAnOptOut(t *testing.T) {
	t.Parallel()
	const words = "Please never call me again."
	start := time.Now().Truncate(time.Microsecond)
	talk := func(c *callstate.Call) {
		c.Initiate(start)
		c.Answer(start.Add(time.Second))
		c.Note(agent.Turn{Role: agent.RoleAgent, Text: "Good day.", At: start.Add(2 * time.Second)})
		c.Note(agent.Turn{Role: agent.RolePerson, Text: words, At: start.Add(3 * time.Second)})
		c.Note(agent.Turn{Role: agent.RoleAgent, Text: "That is noted.", At: start.Add(4 * time.Second)})
	}
	end := func(c *callstate.Call, outcome string) {
		c.End(callstate.End{
			At: start.Add(5 * time.Second), Cause: callstate.NormalClearing, Zone: time.UTC,
			Judged: &agent.Judgement{Outcome: outcome, Reached: agent.ReachedHuman},
		})
	}
	tests := []struct {
		name string
		path func(*callstate.Call)
	}{
		{name: "the agent calls the tool opt_out before the connection breaks", path: func(c *callstate.Call) {
			talk(c)
			c.RecordOptOut(words, start.Add(3*time.Second))
			c.End(callstate.End{At: start.Add(5 * time.Second), Cause: callstate.NetworkOutOfOrder})
		}},
		{name: "the agent ends the call with the outcome opted_out", path: func(c *callstate.Call) {
			talk(c)
			end(c, agent.OutcomeOptedOut)
		}},
		{name: "the summary has the outcome opted_out", path: func(c *callstate.Call) {
			talk(c)
			end(c, agent.OutcomeUnknown)
			c.Analyse(&agent.Summary{Outcome: agent.OutcomeOptedOut}, start.Add(6*time.Second))
		}},
		{name: "the person's words to the scripted agent are an opt-out", path: func(c *callstate.Call) {
			c.Initiate(start)
			c.Answer(start.Add(time.Second))
			c.Hear(words, start.Add(3*time.Second))
			c.End(callstate.End{At: start.Add(5 * time.Second), Cause: callstate.NormalClearing, Zone: time.UTC})
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			instance, workspace := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
			st := newInstance(pool, instance)
			first := aRequest(workspace, 1)
			id := fenced(t, pool, st, first)
			next := aRequest(workspace, 1)
			enqueue(t, pool, st, next)

			err := st.Change(t.Context(), []uuid.UUID{id}, func(calls map[uuid.UUID]*callstate.Call) { test.path(calls[id]) })
			if err != nil {
				t.Fatalf("Change: %v", err)
			}

			reports, err := st.DueReports(t.Context())
			if err != nil {
				t.Fatalf("DueReports: %v", err)
			}
			for i := range reports {
				reports[i].HeardAt = reports[i].HeardAt.UTC()
			}
			want := []callstate.OptOut{{
				CallID: id, WorkspaceID: workspace, PhoneE164: string(first.To), Evidence: words,
				HeardAt: start.Add(3 * time.Second).UTC(),
			}}
			if diff := cmp.Diff(want, reports); diff != "" {
				t.Errorf("reports to contacts-compliance (-want +got):\n%s", diff)
			}
			known, err := st.DialInputs(t.Context(), next)
			if err != nil {
				t.Fatalf("Circumstances: %v", err)
			}
			if !known[0].OptedOut {
				t.Error("OptedOut of the next request = false, want true")
			}
			other := aRequest(uuid.Must(uuid.NewV7()), 1)
			enqueue(t, pool, st, other)
			for _, dial := range []struct {
				name string
				r    dialqueue.Request
				want error
			}{
				{name: "request of the same workspace", r: next, want: store.ErrLost},
				{name: "request of another workspace", r: other, want: nil},
			} {
				const claimByHand = "UPDATE dial_queue SET claimed_by = $2, look_at = now() + interval '1 hour' WHERE " +
					"call_request_id = $1 RETURNING look_at"
				row := pool.QueryRow(t.Context(), claimByHand, dial.r.CallRequestID, instance)
				if err := row.Scan(&dial.r.ClaimedUntil); err != nil {
					t.Fatal(err)
				}
				err := st.Fence(t.Context(), dial.r, uuid.Must(uuid.NewV7()), dialqueue.DefaultFrom, "sim")
				if !errors.Is(err, dial.want) {
					t.Errorf("Fence of a request of the %s = %v, want %v", dial.name, err, dial.want)
				}
			}
		})
	}
}
