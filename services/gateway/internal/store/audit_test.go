package store_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/store"
)

// The test inserts auditRows entries, almost all of them into one workspace. Only the three oldest
// entries have the rare actor and the rare object type. A list may read at most maxAuditPages
// database pages.
const (
	auditRows     = 30_000
	maxAuditPages = 250
)

const seedAudit = `
INSERT INTO audit_entries (id, operator, actor_type, actor_id, actor_name, action, object_type, object_id, workspace_id,
    request_id, method, route, path, status, outcome, after, occurred_at)
SELECT concat(lpad(to_hex(1750000000000 + n), 12, '0'), '70008', substr(md5(n::text), 1, 15))::uuid,
    CASE WHEN n < 4 THEN 'ada' ELSE '' END, CASE WHEN n < 4 THEN 'operator' ELSE 'api_key' END,
    CASE WHEN n < 4 THEN 'ada' ELSE 'key' END, 'name', 'a.b',
    CASE WHEN n < 4 THEN 'agent' WHEN n % 2 = 0 THEN 'contact' ELSE 'call_request' END, 'object ' || n / 10,
    CASE WHEN n % 10000 = 11 THEN @small::uuid ELSE @large::uuid END, gen_random_uuid(), 'POST', '/v1/calls',
        '/v1/calls',
    202, 'done', json_build_object('id', md5(n::text), 'to', '+14155550100'), now()
FROM generate_series(1, @many::int) AS n`

func TestWorkspaceEntries_EveryFilterReadsFewDatabasePages(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, store.Schema, outbox.Migrations, pg.Migrations{Name: store.Schema, FS: store.Migrations})
	large, small, empty := uuid.New(), uuid.New(), uuid.New()
	owner := pgtest.Owner(t, pool, store.Schema)
	args := pgx.NamedArgs{"small": small, "large": large, "many": auditRows}
	if _, err := owner.Exec(t.Context(), seedAudit, args); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(t.Context(), "VACUUM (ANALYZE) audit_entries"); err != nil {
		t.Fatal(err)
	}
	watched, seen := pgtest.Watch(t, pool)
	st := store.New(watched, nil)
	early := uuid.MustParse("01977420-0000-7000-8000-000000000000")
	lists := map[string]func(workspace uuid.UUID) error{
		"the admin list": func(uuid.UUID) error {
			_, err := st.Entries(t.Context(), nil, page.Request{Limit: 25})
			return err
		},
		"the admin list of one workspace": func(workspace uuid.UUID) error {
			_, err := st.Entries(t.Context(), &workspace, page.Request{Limit: 25})
			return err
		},
	}
	for name, filter := range map[string]audit.Filter{
		"no filter": {}, "a rare actor": {ActorID: new("ada")}, "the common actor": {ActorID: new("key")},
		"no actor": {ActorID: new("none")}, "a rare type": {ObjectType: new("agent")},
		"a common type": {ObjectType: new("contact")}, "an object": {ObjectID: new("object 7")},
		"an object of another type":       {ObjectType: new("agent"), ObjectID: new("object 7")},
		"a rare type of the common actor": {ActorID: new("key"), ObjectType: new("agent")},
		"a common type of a rare actor":   {ActorID: new("ada"), ObjectType: new("contact")},
		"a time before all entries":       {Until: &early}, "a type before all entries": {Until: &early,
			ObjectType: new("contact")},
	} {
		lists[name] = func(workspace uuid.UUID) error {
			_, err := st.WorkspaceEntries(t.Context(), workspace, filter, page.Request{Limit: 25})
			return err
		}
	}
	for name, list := range lists {
		for of, workspace := range map[string]uuid.UUID{"large": large, "small": small, "empty": empty} {
			t.Run(name+"/"+of, func(t *testing.T) {
				seen.Forget()
				if err := list(workspace); err != nil {
					t.Fatal(err)
				}
				for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
					pages, plans := seen.Pages(t, mode)
					if pages == 0 || pages > maxAuditPages {
						t.Errorf("%s: pages = %d, want 1 to %d: %s", mode, pages, maxAuditPages, plans)
					}
					if strings.Contains(plans, `"Seq Scan"`) {
						t.Errorf("%s: the plan has a Seq Scan: %s", mode, plans)
					}
				}
			})
		}
	}
}
