package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/calls/internal/store"
)

// firstCall is the time from which the calls of seedCalls are counted: call number n was created n
// milliseconds later.
var firstCall = time.UnixMilli(1750000000000)

func idAfter(milliseconds int) uuid.UUID {
	return page.FirstID(firstCall.Add(time.Duration(milliseconds) * time.Millisecond))
}

func TestCountCalls_CountsEndedCallsOfEachInterval(t *testing.T) {
	t.Parallel()
	pool := seeded(t)
	_, err := pgtest.Owner(t, pool, "calls").Exec(t.Context(), `UPDATE calls SET closed = true, answered_at = now(),
		talk_seconds = 2, charge_settled = true, credits_micro = 5 WHERE uuid_send(id) < uuid_send($1::uuid)
		    AND list_status <> 'live'`, idAfter(9))
	if err != nil {
		t.Fatal(err)
	}
	bounds := []uuid.UUID{idAfter(2), idAfter(4), idAfter(6), idAfter(100)}
	// Calls 1 to 3 are inbound and have the status `busy`. Call 6 has the status `no_answer`, and call
	// 7 the status `ringing`. Calls with even numbers have the outcome `interested`.
	tests := []struct {
		name   string
		filter store.StatisticsFilter
		want   []store.CallCount
	}{{
		"all calls", store.StatisticsFilter{},
		[]store.CallCount{
			{Interval: 0, Status: "busy", Outcome: new("interested"), Calls: 1, Answered: 1, TalkSeconds: 2, CreditsMicro: 5},
			{Interval: 0, Status: "busy", Calls: 1, Answered: 1, TalkSeconds: 2, CreditsMicro: 5},
			{Interval: 1, Status: "completed", Outcome: new("interested"), Calls: 1, Answered: 1, TalkSeconds: 2,
				CreditsMicro: 5},
			{Interval: 1, Status: "completed", Calls: 1, Answered: 1, TalkSeconds: 2, CreditsMicro: 5},
			{Interval: 2, Status: "completed", Outcome: new("interested"), Calls: 1, Answered: 1, TalkSeconds: 2,
				CreditsMicro: 5},
			{Interval: 2, Status: "no_answer", Outcome: new("interested"), Calls: 1, Answered: 1, TalkSeconds: 2,
				CreditsMicro: 5},
		},
	}, {
		"one direction", store.StatisticsFilter{Direction: "inbound"},
		[]store.CallCount{
			{Interval: 0, Status: "busy", Outcome: new("interested"), Calls: 1, Answered: 1, TalkSeconds: 2, CreditsMicro: 5},
			{Interval: 0, Status: "busy", Calls: 1, Answered: 1, TalkSeconds: 2, CreditsMicro: 5},
		},
	}, {
		"an agent without calls", store.StatisticsFilter{AgentID: &none}, []store.CallCount{},
	}}
	st := store.New(pool, nil)
	for _, test := range tests {
		got, err := st.CountCalls(t.Context(), large, bounds, test.filter)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: counts differ (-want +got):\n%s", test.name, diff)
		}
	}
	other, err := st.CountCalls(t.Context(), small, bounds, store.StatisticsFilter{})
	if err != nil || len(other) != 0 {
		t.Errorf("calls of another workspace = %v, %v, want none", other, err)
	}
}

// A page of the index has about 60 calls, and a page of the table has about 20 calls. For rows that
// changed after the last VACUUM, Postgres reads the index and the table.
func TestCountCalls_ReadsTheIndexOnly(t *testing.T) {
	t.Parallel()
	pool := seeded(t)
	owner := pgtest.Owner(t, pool, "calls")
	for _, sql := range []string{"UPDATE calls SET closed = true WHERE list_status <> 'live'", "VACUUM (ANALYZE) calls"} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	watched, seen := pgtest.Watch(t, pool)
	bounds := []uuid.UUID{idAfter(0)}
	for hour := range 24 {
		bounds = append(bounds, idAfter((hour+1)*insertedRows/24))
	}
	seen.Forget()
	if _, err := store.New(watched, nil).CountCalls(t.Context(), large, bounds, store.StatisticsFilter{}); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
		pages, plans := seen.Pages(t, mode)
		if most := insertedRows / 20; pages > most {
			t.Errorf("%s: pages = %d, want at most %d", mode, pages, most)
		}
		if !strings.Contains(plans, `"Index Only Scan"`) {
			t.Errorf("%s: plans = %s, want an Index Only Scan", mode, plans)
		}
	}
}
