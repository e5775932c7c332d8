package store_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// seedDecisions inserts decisions. Most of them belong to one number of the workspace large. The
// workspace small has few decisions.
const seedDecisions = `
INSERT INTO decisions (id, workspace_id, call_request_id, phone_e164, kind, inputs, policy_version, result, rule, code,
	message, call_at, judged_at, gates)
SELECT concat(lpad(to_hex(1750000000000 + n), 12, '0'), '70008', substr(md5(n::text), 1, 15))::uuid,
    CASE WHEN n % 10000 = 11 THEN @small::uuid ELSE @large::uuid END,
    concat('00000000-0000-7000-8000-', lpad(n::text, 12, '0'))::uuid,
    CASE WHEN n % 1000 = 7 THEN '+14155550007' ELSE '+14155550001' END, 'dial', '{}', 0, 'open', '', '', '', now(),
    now(), '[]'
FROM generate_series(1, 30000) AS n`

// The rows of a page must be found without reading all decisions of the workspace or of the number.
func TestDecisions_EachFilterReadsOnlyAPartOfTheWorkspace(t *testing.T) {
	t.Parallel()
	_, pool := open(t)
	watched, seen := pgtest.Watch(t, pool)
	st := store.New(watched, chains(t))
	large, small, none := uuid.New(), uuid.New(), uuid.New()
	owner := pgtest.Owner(t, pool, "contacts_compliance")
	if _, err := owner.Exec(t.Context(), seedDecisions, pgx.NamedArgs{"large": large, "small": small}); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(t.Context(), "VACUUM (ANALYZE) decisions"); err != nil {
		t.Fatal(err)
	}
	request := uuid.MustParse("00000000-0000-7000-8000-000000000001")
	tests := []struct {
		name    string
		request uuid.UUID
		number  phone.Number
		found   int
	}{
		{name: "no filter", found: 26},
		{name: "a number with many decisions", number: "+14155550001", found: 26},
		{name: "a number with few decisions", number: "+14155550007", found: 26},
		{name: "a number without a decision", number: "+14155550002"},
		{name: "a call request", request: request, found: 1},
		{name: "a call request of another number", request: request, number: "+14155550007"},
	}
	const maxPages = 150
	for _, tt := range tests {
		for of, workspace := range map[string]uuid.UUID{"large": large, "small": small, "empty": none} {
			t.Run(tt.name+"/"+of, func(t *testing.T) {
				seen.Forget()
				found, err := st.Decisions(t.Context(), workspace, tt.request, tt.number, page.Request{Limit: 25})
				if err != nil {
					t.Fatalf("Decisions: %v", err)
				}
				if of == "large" && len(found) != tt.found {
					t.Errorf("length of found = %d, want %d", len(found), tt.found)
				}
				// Decisions uses no plan cache, so its plan is always a custom plan.
				n, plans := seen.Pages(t, pgtest.CustomPlan)
				if n > maxPages {
					t.Errorf("%d pages, want at most %d\n%s", n, maxPages, plans)
				}
			})
		}
	}
}
