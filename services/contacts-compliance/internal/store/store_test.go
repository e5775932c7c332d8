package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

func chains(t testing.TB) *consentchain.Keys {
	t.Helper()
	keys, err := consentchain.NewKeys(nil, "test")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func open(t *testing.T) (*store.Store, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.New(t, "contacts_compliance", outbox.Migrations, inbox.Migrations,
		pg.Migrations{Name: "contacts_compliance", FS: store.Migrations})
	return store.New(pool, chains(t)), pool
}

const number = phone.Number("+15005550001")

func TestCreate_ConcurrentCallsCreateOneContact(t *testing.T) {
	t.Parallel()
	st, pool := open(t)
	workspace := uuid.Must(uuid.NewV7())
	var mu sync.Mutex
	var all sync.WaitGroup
	created, ids := 0, map[uuid.UUID]bool{}
	for range 16 {
		all.Go(func() {
			c, existed, err := st.Create(t.Context(), contacts.Contact{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace,
				Number: number})
			if err != nil {
				t.Errorf("Create: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[c.ID] = true
			if !existed {
				created++
			}
		})
	}
	all.Wait()
	var rows int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM contacts").Scan(&rows); err != nil {
		t.Errorf("rows: QueryRow: %v", err)
	} else if rows != 1 {
		t.Errorf("rows = %v, want 1", rows)
	}
	if created != 1 {
		t.Errorf("created = %v, want 1", created)
	} else if len(ids) != 1 {
		t.Errorf("length of ids = %d, want 1", len(ids))
	}
}

// Of several concurrent requests for one number, one request creates the contact and its consent
// record. The other requests change nothing.
func TestCreateWithConsent_ConcurrentCallsStoreOneContactAndOneRecord(t *testing.T) {
	t.Parallel()
	st, pool := open(t)
	workspace := uuid.Must(uuid.NewV7())
	var all sync.WaitGroup
	var created atomic.Int64
	for range 16 {
		all.Go(func() {
			change := contacts.Change{WorkspaceID: workspace, Number: number, Kind: contacts.ConsentGranted, Source: "form",
				Actor: "request:1"}
			c, existed, err := st.CreateWithConsent(t.Context(), contacts.Contact{ID: uuid.Must(uuid.NewV7()),
				WorkspaceID: workspace, Number: number}, change)
			if err != nil {
				t.Errorf("CreateWithConsent: %v", err)
			} else if c.Consent != contacts.Consented {
				t.Errorf("consent_status = %s, want consented", c.Consent)
			}
			if !existed {
				created.Add(1)
			}
		})
	}
	all.Wait()
	if got := created.Load(); got != 1 {
		t.Errorf("created = %d, want 1", got)
	}
	records, err := st.Records(t.Context(), workspace, number, page.Request{Limit: 25})
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 1 {
		t.Errorf("consent records = %d, want 1", len(records))
	}
	result, err := store.NewArchive(pool, chains(t)).Verify(t.Context(), nil, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Breaks) != 0 {
		t.Errorf("breaks of the chain = %v, want none", result.Breaks)
	}
}

// If the consent record cannot be stored, the other fields of the same request are not stored
// either. A trigger makes the insert of the record fail.
func TestUpdate_ChangesNothingIfTheConsentRecordFails(t *testing.T) {
	t.Parallel()
	st, pool := open(t)
	workspace := uuid.Must(uuid.NewV7())
	c, _, err := st.Create(
		t.Context(),
		contacts.Contact{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace, Number: number},
	)
	if err != nil {
		t.Fatal(err)
	}
	owner := pgtest.Owner(t, pool, "contacts_compliance")
	for _, sql := range []string{
		`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`,
		`CREATE TRIGGER broken BEFORE INSERT ON consent_records FOR EACH ROW EXECUTE FUNCTION fail()`,
	} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	change := contacts.Change{WorkspaceID: workspace, Kind: contacts.ConsentWithdrawn, Source: "form", Actor: "request:1"}
	if _, err := st.Update(t.Context(), workspace, c.ID, &change, func(c *contacts.Contact) error {
		c.Name = new("Ada")
		return nil
	}); err == nil {
		t.Error("Update with a failing consent insert = nil, want an error")
	}
	created := contacts.Contact{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace, Number: "+15005550002"}
	change.Number = created.Number
	if _, _, err := st.CreateWithConsent(t.Context(), created, change); err == nil {
		t.Error("CreateWithConsent with a failing consent insert = nil, want an error")
	}
	left, err := st.List(t.Context(), workspace, store.Filter{}, page.Request{Limit: 25})
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 {
		t.Fatalf("contacts = %d, want 1", len(left))
	}
	if left[0].Name != nil {
		t.Errorf("name = %q, want none", *left[0].Name)
	}
	if left[0].Consent != contacts.ConsentUnknown {
		t.Errorf("consent_status = %s, want unknown", left[0].Consent)
	}
}

func TestSchema_ServiceRoleCannotChangeRecords(t *testing.T) {
	t.Parallel()
	st, pool := open(t)
	change := contacts.Change{WorkspaceID: uuid.Must(uuid.NewV7()), Number: number, Kind: contacts.OptOut, Source: "api",
		Actor: "test"}
	if _, err := st.Record(t.Context(), change, store.CreateUnknown); err != nil {
		t.Fatal(err)
	}
	var super string // the bootstrap superuser
	if err := pool.QueryRow(t.Context(), "SELECT quote_ident(rolname) FROM pg_roles WHERE oid = 10").Scan(
		&super); err != nil {
		t.Fatal(err)
	}
	month, imported, record := time.Now().UTC().Format("200601"), uuid.NewString(), uuid.NewString()
	for _, sql := range []string{
		"INSERT INTO opt_out_imports (id, workspace_id, status, actor, record_id) VALUES ('" + imported + "', '" +
			change.WorkspaceID.String() + "', 'done', 'operator:ann', '" + record + "')",
		"INSERT INTO opt_out_import_numbers VALUES ('" + imported + "', '+14155550100')",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range []string{
		"UPDATE consent_records SET actor = 'another'", "DELETE FROM consent_records", "TRUNCATE consent_records",
		"UPDATE decisions SET result = 'open'", "DELETE FROM decisions", "TRUNCATE decisions",
		"UPDATE consent_records_default SET actor = 'another'",
		"INSERT INTO consent_records_default SELECT * FROM consent_records", "SELECT * FROM decisions_default",
		"DELETE FROM consent_records_" + month, "UPDATE consent_records_" + month + " SET actor = 'another'",
		"TRUNCATE consent_records_" + month,
		"INSERT INTO decisions_" + month + " SELECT * FROM decisions", "DROP TABLE consent_records_" + month,
		"DELETE FROM consent_heads", "DELETE FROM consent_starts",
		"UPDATE policies SET operator = 'another'", "DELETE FROM policies", "TRUNCATE policies",
		"DELETE FROM opt_out_import_numbers", "UPDATE opt_out_import_numbers SET phone_e164 = '+14155550101'",
		"TRUNCATE opt_out_import_numbers",
		"UPDATE opt_out_imports SET record_id = NULL", "DELETE FROM opt_out_imports", "TRUNCATE opt_out_imports",
		"ALTER TABLE opt_out_imports DISABLE TRIGGER ALL", "SET session_replication_role = replica",
		"ALTER TABLE consent_records DISABLE TRIGGER ALL", "DROP TABLE consent_records",
		"ALTER TABLE consent_records OWNER TO contacts_compliance_app",
		"ALTER TABLE consent_records DETACH PARTITION consent_records_" + month, "CREATE TABLE mine (x int)",
		"CREATE FUNCTION now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'",
		"CREATE TRIGGER mine BEFORE INSERT ON consent_records FOR EACH ROW EXECUTE FUNCTION refuse_import_change()",
		"CREATE RULE mine AS ON INSERT TO consent_records DO INSTEAD NOTHING", "SET ROLE contacts_compliance_owner",
		"SET SESSION AUTHORIZATION " + super,
		"CREATE OR REPLACE FUNCTION oldest_month(parent text, before date) RETURNS date LANGUAGE sql AS 'SELECT before'",
	} {
		var fault *pgconn.PgError
		if _, err := pool.Exec(t.Context(), sql); !errors.As(err, &fault) {
			t.Errorf("%s: Exec = %v, want a %T", sql, err, fault)
		} else if fault.Code != "42501" {
			t.Errorf(`%s: fault.Code = %q, want "42501"`, sql, fault.Code)
		}
	}
	// the SQL function refuses to drop a month of this year
	for _, table := range []string{"consent_records", "decisions"} {
		if _, err := pool.Exec(t.Context(), "SELECT drop_month('"+table+"', date_trunc('month', now())::date)"); err == nil {
			t.Errorf("drop_month of this month of %s = nil, want an error", table)
		}
	}
	if _, err := pool.Exec(t.Context(), "SELECT drop_month('policies', '2001-01-01')"); err == nil {
		t.Error("drop_month of policies = nil, want an error")
	}
}

func TestRecord_StoresAnOptOutOncePerCall(t *testing.T) {
	t.Parallel()
	st, _ := open(t)
	change := contacts.Change{
		WorkspaceID: uuid.Must(uuid.NewV7()), Number: number, Kind: contacts.OptOut, Source: contacts.SourceCall,
		Actor:  "call",
		CallID: uuid.Must(uuid.NewV7()), OccurredAt: time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC),
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if c, err := st.Record(t.Context(), change, store.CreateUnknown); err != nil {
				t.Errorf("Record: %v", err)
			} else if c.DND != contacts.OptedOut {
				t.Errorf("Record: c.DND = %v, want %v", c.DND, contacts.OptedOut)
			}
		})
	}
	all.Wait()
	removed := contacts.Change{WorkspaceID: change.WorkspaceID, Number: number, Kind: contacts.OptOutRemoved,
		Source: "api", Actor: "test"}
	if _, err := st.Record(t.Context(), removed, store.RefuseUnknown); err != nil {
		t.Fatal(err)
	}
	if c, err := st.Record(t.Context(), change, store.CreateUnknown); err != nil {
		t.Errorf("repeated opt-out of the call:  Record: %v", err)
	} else if c.DND != contacts.Clean {
		t.Errorf("repeated opt-out of the call:  c.DND = %v, want %v", c.DND, contacts.Clean)
	}
	records, err := st.Records(t.Context(), change.WorkspaceID, number, page.Request{Limit: 100})
	if err != nil {
		t.Fatalf("records: error = %v", err)
	}
	if got := len(records); got != 2 {
		t.Fatalf("records: length of records = %v, want 2", got)
	}
	if !records[1].OccurredAt.Equal(change.OccurredAt) {
		t.Errorf("records: records[1].OccurredAt = %v, want %v", records[1].OccurredAt, change.OccurredAt)
	}
}

// After any sequence of changes, each state must have the value of its last change. In each record,
// the value before the change must be the value after the previous change.
func TestRecord_DNDAndConsentAreIndependent(t *testing.T) {
	t.Parallel()
	st, _ := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		workspace := uuid.Must(uuid.NewV7())
		dnd, consent := contacts.DNDUnknown, contacts.ConsentUnknown
		kinds := rapid.SliceOfN(rapid.SampledFrom([]contacts.Kind{contacts.OptOut, contacts.OptOutRemoved,
			contacts.ConsentGranted, contacts.ConsentWithdrawn}), 1, 5).Draw(rt, "kinds")
		for _, kind := range kinds {
			c, err := st.Record(t.Context(), contacts.Change{WorkspaceID: workspace, Number: number, Kind: kind, Source: "api",
				Actor: "test"}, store.CreateUnknown)
			if err != nil {
				rt.Fatal(err)
			}
			switch kind {
			case contacts.OptOut:
				dnd = contacts.OptedOut
			case contacts.OptOutRemoved:
				dnd = contacts.Clean
			case contacts.ConsentGranted:
				consent = contacts.Consented
			case contacts.ConsentWithdrawn:
				consent = contacts.Withdrawn
			}
			if c.DND != dnd {
				rt.Fatalf("after %s: c.DND = %v, want %v", kind, c.DND, dnd)
			}
			if c.Consent != consent {
				rt.Fatalf("after %s: c.Consent = %v, want %v", kind, c.Consent, consent)
			}
		}
		records, err := st.Records(t.Context(), workspace, "", page.Request{Limit: 100})
		if err != nil {
			rt.Fatalf("records: %v", err)
		}
		if len(records) != len(kinds) {
			rt.Fatalf("records: length of records = %d, want %d", len(records), len(kinds))
		}
		last := map[bool]string{}
		for i := len(records) - 1; i >= 0; i-- { // oldest first
			onDND := records[i].Kind == contacts.OptOut || records[i].Kind == contacts.OptOutRemoved
			before := last[onDND]
			if before == "" {
				before = "unknown"
			}
			if records[i].Before != before {
				rt.Fatalf("before of record %d = %s, want %s", i, records[i].Before, before)
			}
			last[onDND] = records[i].After
		}
	})
}

func TestApplyPolicy_ConcurrentChangesEndWithTheNewestVersion(t *testing.T) {
	t.Parallel()
	st, pool := open(t)
	workspace := uuid.Must(uuid.NewV7())
	const newest = 16
	var all sync.WaitGroup
	for version := int64(1); version <= newest; version++ {
		all.Go(func() {
			change := store.PolicyChange{
				WorkspaceID: workspace, Operator: "bob", SetInVersion: version,
				JSON: fmt.Appendf(nil, `{"window":{"start":"%02d:00","end":"24:00"}}`, version),
			}
			if err := st.ApplyPolicy(t.Context(), change, countryrules.Library{}); err != nil {
				t.Errorf("ApplyPolicy of version %d: %v", version, err)
			}
		})
	}
	all.Wait()
	p, version, err := st.Policy(t.Context(), workspace)
	if err != nil {
		t.Fatalf("Policy: %v", err)
	}
	if got := p.Window.Start; got != newest*60 {
		t.Errorf("window.start in force = %d, want %d, of the newest version", got, newest*60)
	}
	var recorded int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM policies").Scan(&recorded); err != nil {
		t.Fatalf("count policies: %v", err)
	}
	if recorded != version {
		t.Errorf("recorded policies = %d, want %d, one for each policy version", recorded, version)
	}
}

// A consumer's batch can contain a version of a policy that ApplySetting has already stored. Such a
// batch must not delay the next policy change of the workspace.
func TestSetPolicy_RepeatedVersionLocksNoRow(t *testing.T) {
	t.Parallel()
	st, pool := open(t)
	change := store.PolicyChange{WorkspaceID: uuid.Must(uuid.NewV7()), Operator: "bob", SetInVersion: 1}
	if err := st.ApplyPolicy(t.Context(), change, countryrules.Library{}); err != nil {
		t.Fatalf("apply version 1: %v", err)
	}
	batch, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("begin batch: %v", err)
	}
	t.Cleanup(func() { _ = batch.Rollback(context.Background()) })
	if err := st.SetPolicy(t.Context(), batch, change, countryrules.Library{}); err != nil {
		t.Fatalf("store the same version in the batch: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	change.SetInVersion = 2
	if err := st.ApplyPolicy(ctx, change, countryrules.Library{}); err != nil {
		t.Errorf("apply version 2 before the batch commits: %v", err)
	}
	// If the change to version 2 had waited for the batch, the database would have ended the idle
	// session of the batch, and this commit would fail.
	if err := batch.Commit(t.Context()); err != nil {
		t.Errorf("commit the batch: %v", err)
	}
}

func TestDeletePreChecks_KeepsRecentRows(t *testing.T) {
	t.Parallel()
	st, pool := open(t)
	_, err := pool.Exec(t.Context(),
		`INSERT INTO pre_checks (workspace_id, call_request_id, phone_e164, contact_id, variables, scheduled_for, created_at)
		SELECT gen_random_uuid(), gen_random_uuid(), '+15005550001', gen_random_uuid(), '{}', now(),
			now() - make_interval(days => d) FROM unnest(ARRAY[0, 29, 31, 60]) AS d`)
	if err != nil {
		t.Fatal(err)
	}
	if deleted, err := st.DeletePreChecks(t.Context(), 30*24*time.Hour); err != nil {
		t.Errorf("DeletePreChecks: %v", err)
	} else if deleted != 2 {
		t.Errorf("DeletePreChecks: gone = %v, want 2", deleted)
	}
}
