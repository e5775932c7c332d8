package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/calls/internal/store"
)

// Each table has insertedRows rows, almost all in one workspace. A list is allowed to read maxPages
// database pages.
const (
	insertedRows = 30_000
	maxPages     = 250
)

var (
	large, small       = uuid.MustParse("01900000-0000-7000-8000-00000000000a"), uuid.MustParse("01900000-0000-7000-8000-00000000000b")
	common, rare, none = uuid.MustParse("01900000-0000-7000-8000-0000000000c0"), uuid.MustParse("01900000-0000-7000-8000-0000000000c1"), uuid.MustParse("01900000-0000-7000-8000-0000000000c2")
)

const seedCalls = `
INSERT INTO calls (id, workspace_id, direction, from_number, to_e164, agent_id, contact_id, external_ref, status,
    outcome, billable_seconds, version, closed)
SELECT concat(lpad(to_hex(1750000000000 + n), 12, '0'), '70008', substr(md5(n::text), 1, 15))::uuid,
    CASE WHEN n % 10000 = 11 THEN @small::uuid ELSE @large::uuid END,
    CASE WHEN n < 4 THEN 'inbound' ELSE 'outbound' END, '+15005550006',
    CASE WHEN n < 4 THEN '+14155550199' ELSE '+14155550100' END,
    CASE WHEN n < 4 THEN @rare::uuid ELSE @common::uuid END, CASE WHEN n % 4 = 0 THEN @rare::uuid END,
    CASE WHEN n = 1 THEN 'once' WHEN n % 2 = 0 THEN 'campaign' END,
    CASE WHEN n < 4 THEN 'busy' WHEN n % 3 = 0 THEN 'no_answer' WHEN n % 15001 = 7 THEN 'ringing' ELSE 'completed' END,
    CASE WHEN n = 1 THEN 'appointment_booked' WHEN n % 2 = 0 THEN 'interested' END, 0, 1, false
FROM generate_series(1, @many::int) AS n`

const seedRequests = `
INSERT INTO call_requests (id, workspace_id, status, to_e164, agent_id, contact_id, variables, external_ref, scheduled_for,
    schedule_if_outside_hours, max_call_seconds, queued_at, error_code, completed_at, traceparent)
SELECT concat(lpad(to_hex(1750000000000 + n), 12, '0'), '70008', substr(md5(n::text), 1, 15))::uuid,
    CASE WHEN n % 10000 = 11 THEN @small::uuid ELSE @large::uuid END, s.status,
    CASE WHEN n < 4 THEN '+14155550199' ELSE '+14155550100' END, @common, @common, '{}',
    CASE WHEN n = 1 THEN 'once' WHEN n % 2 = 0 THEN 'campaign' END, now(), false, 60, now(),
    CASE WHEN s.status = 'blocked' THEN 'recipient_dnd' END, CASE WHEN s.status <> 'queued' THEN now() END, ''
FROM generate_series(1, @many::int) AS n,
    LATERAL (SELECT CASE WHEN n < 4 THEN 'blocked' WHEN n % 3 = 0 THEN 'queued' ELSE 'completed' END AS status) AS s`

// The statement must not read the calls of other days and other workspaces.
func TestUsage_ReadsOnlyTheCallsOfThePeriod(t *testing.T) {
	t.Parallel()
	pool := seeded(t)
	watched, seen := pgtest.Watch(t, pool)
	st := store.New(watched, nil)
	first := time.UnixMilli(1750000000000)
	for name, workspace := range map[string]uuid.UUID{"large": large, "small": small, "empty": none} {
		seen.Forget()
		var calls int64
		err := st.Usage(t.Context(), workspace, first.Add(100*time.Millisecond), first.Add(600*time.Millisecond),
			func(u store.Usage) error { calls += u.Calls; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]int64{"large": 500, "small": 0, "empty": 0}[name]; calls != want {
			t.Errorf("%s: calls = %d, want %d", name, calls, want)
		}
		for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
			if n, plans := seen.Pages(t, mode); n == 0 || n > maxPages {
				t.Errorf("%s: %s: pages = %d, want 1 to %d; plans:\n%s", name, mode, n, maxPages, plans)
			}
		}
	}
}

func seeded(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t, "calls", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "calls", FS: store.Migrations})
	args := pgx.NamedArgs{"small": small, "large": large, "rare": rare, "common": common, "many": insertedRows}
	owner := pgtest.Owner(t, pool, "calls")
	for _, sql := range []string{seedCalls, seedRequests} {
		if _, err := owner.Exec(t.Context(), sql, args); err != nil {
			t.Fatal(err)
		}
	}
	// Dead rows would make some plans read more rows.
	if _, err := owner.Exec(t.Context(), "VACUUM (ANALYZE) calls, call_requests"); err != nil {
		t.Fatal(err)
	}
	return pool
}

func TestLists_EveryFilterReadsFewPages(t *testing.T) {
	t.Parallel()
	pool := seeded(t)
	watched, seen := pgtest.Watch(t, pool)
	st := store.New(watched, nil)
	early := uuid.MustParse("01977420-0000-7000-8000-000000000000")
	calls := map[string]store.CallFilter{
		"nothing": {}, "a rare status": {Status: "busy"}, "a status without calls": {Status: "canceled"},
		"the status of a call in progress":        {Status: "ringing"},
		"a rare direction":                        {Direction: "inbound"},
		"a direction and status that no call has": {Direction: "inbound", Status: "no_answer"},
		"a rare agent":                            {AgentID: &rare}, "the common agent": {AgentID: &common},
		"an agent without calls":                                  {AgentID: &none},
		"the common agent with a status that no call has":         {AgentID: &common, Status: "failed"},
		"the rare agent with a status that none of its calls has": {AgentID: &rare, Status: "completed"},
		"a reference used once":                                   {ExternalRef: new("once")},
		"a reference without calls":                               {ExternalRef: new("never")},
		"a common reference":                                      {ExternalRef: new("campaign")},
		"a common reference with a direction and status that no call has": {ExternalRef: new("campaign"),
			Direction: "inbound", Status: "no_answer"},
		"a contact without calls": {ContactID: &none}, "a contact with many calls": {ContactID: &rare},
		"all filters": {Status: "busy",
			Direction: "inbound", AgentID: &rare, ExternalRef: new("once")},
		"a rare number":     {To: "+14155550199"},
		"the common number": {To: "+14155550100"},
		"no number":         {To: "+14155550111"},
		"the common number, rarely": {
			To:     "+14155550100",
			Status: "canceled",
		},
		"a rare outcome":                      {Outcome: new("appointment_booked")},
		"the common outcome":                  {Outcome: new("interested")},
		"an outcome without calls":            {Outcome: new("never")},
		"a rare outcome of the common number": {To: "+14155550100", Outcome: new("appointment_booked")},
		"a request": {
			CallRequestID: &rare,
		},
		"a request of a status":      {CallRequestID: &none, Status: "busy"},
		"a time before all calls":    {Until: &early},
		"a status, before all calls": {Until: &early, Status: "completed"},
	}
	look := func(t *testing.T, list func() error) {
		t.Helper()
		seen.Forget()
		if err := list(); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
			n, plans := seen.Pages(t, mode)
			if n == 0 {
				t.Errorf("%s: n = 0, want more", mode)
			}
			if n > maxPages {
				t.Errorf("%s: n = %v, want at most %v", mode, n, maxPages)
			}
			if strings.Contains(plans, `"Seq Scan"`) {
				t.Errorf("%s: plans = %q, want it not to contain %q", mode, plans, `"Seq Scan"`)
			}
		}
	}
	for name, filter := range calls {
		for of, workspace := range map[string]uuid.UUID{"large": large, "small": small, "empty": none} {
			t.Run("calls/"+name+"/"+of, func(t *testing.T) {
				look(t, func() error { _, err := st.Calls(t.Context(), workspace, page.Request{Limit: 25}, filter); return err })
			})
		}
	}
	for name, filter := range map[string]store.RequestFilter{
		"nothing": {}, "a rare status": {Status: "blocked"}, "a status without calls": {Status: "canceled"},
		"a reference used once": {ExternalRef: new("once")}, "a rare number": {To: "+14155550199"},
		"the common number, never": {To: "+14155550100", Status: "canceled"}, "no number": {To: "+14155550111"},
		"a rare reference of the common number": {To: "+14155550100", ExternalRef: new("once")},
		"a time before all requests":            {Until: &early},
		"a status, before all requests":         {Until: &early, Status: "completed"},
		"a common reference":                    {ExternalRef: new("campaign")},
		"a common reference, never":             {ExternalRef: new("campaign"), Status: "canceled"},
	} {
		for of, workspace := range map[string]uuid.UUID{"large": large, "small": small, "empty": none} {
			t.Run("requests/"+name+"/"+of, func(t *testing.T) {
				look(t, func() error {
					_, err := st.Requests(t.Context(), workspace, page.Request{Limit: 25}, filter)
					return err
				})
			})
		}
	}
}
