package consentlog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/retention"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// After a month was dropped, each chain starts after its last dropped row. Months that ended less
// than five years ago are not dropped.
func TestVerify_ReportsNoBreakAfterAMonthWasDropped(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	now, err := r.archive.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	long := uuid.Must(uuid.NewV7()) // this workspace has rows that are 7, 6.5 and 4 years old
	at := consentchain.Link{}
	for _, age := range []int{84, 84, 78, 48} {
		month := time.Date(now.Year(), now.Month()-time.Month(age), 1, 0, 0, 0, 0, time.UTC)
		if _, err := r.archive.AddMonths(t.Context(), month, month); err != nil {
			t.Fatal(err)
		}
		number, id, before, after := "+15005550001", uuid.Must(uuid.NewV7()), "unknown", "dnd"
		row := consentchain.Row{WorkspaceID: long, RecordedAt: month.Add(time.Hour), ID: uuid.Must(uuid.NewV7()),
			Number: &number, ContactID: &id, Kind: "opt_out", Source: "api", Actor: "a",
			Before: &before, After: &after, OccurredAt: month}
		at = row.Sign(r.keys, at)
		if _, err := r.super.Exec(t.Context(),
			`INSERT INTO consent_records (workspace_id, seq, recorded_at, id, phone_e164, contact_id, kind, source, actor,
				before, after, occurred_at, key_id, mac)
			VALUES (@ws, @seq, @recorded, @id, @number, @contact, 'opt_out', 'api', 'a', 'unknown', 'dnd', @occurred, @key,
				@mac)`, pg.Args{"ws": long, "seq": row.Seq, "recorded": row.RecordedAt,
				"id": row.ID, "number": number, "contact": id, "occurred": row.OccurredAt, "key": row.KeyID,
				"mac": row.MAC}); err != nil {
			t.Fatal(err)
		}
	}
	r.addContact(long, "+15005550001", "dnd")
	head := r.keys.SignHead(long, at)
	if _, err := r.super.Exec(t.Context(), `INSERT INTO consent_heads VALUES ($1, $2, $3, now(), $4, $5)`, long, head.Seq,
		head.MAC, head.KeyID, head.Sum); err != nil {
		t.Fatal(err)
	}
	r.writeHeadLog()
	r.requireIntact()
	// the job uses five years, because the configured period is shorter
	job := retention.New(r.store, r.archive,
		retention.Config{Records: time.Hour, Decisions: time.Hour})
	for range 2 {
		if err := job.RotateMonths(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := r.super.QueryRow(t.Context(), `SELECT count(*) FROM consent_records WHERE workspace_id = $1`,
			long).Scan(&left); err != nil {
			t.Fatalf("QueryRow: %v", err)
		} else if left != 1 {
			t.Fatalf("left = %v, want 1", left)
		}
		r.requireIntact()
	}
	r.record(contacts.Change{WorkspaceID: long, Number: "+15005550001", Kind: contacts.OptOutRemoved, Source: "api",
		Actor: "a"})
	r.requireIntact()
	if _, err := r.archive.DropMonths(t.Context(), "consent_records", now); err == nil {
		t.Error("DropMonths of a month four years ago = nil, want an error")
	} else if !strings.Contains(err.Error(), "five years") {
		t.Errorf(`DropMonths of a month four years ago = %q, want it to contain "five years"`, err.Error())
	}
	r.requireIntact()
	if _, err := r.super.Exec(t.Context(), `UPDATE consent_starts SET seq = 2 WHERE workspace_id = $1`, long); err != nil {
		t.Fatal(err)
	}
	r.requireBreak("its start after row 2")
}

// A person with access to the database can create an old month with copies of recent rows, or
// replace the SQL function oldest_month. In these cases the job must not sign a new start of the
// chain, because verify could no longer detect missing rows.
func TestVerify_FindsMissingRowsAfterRotateMonthsFailed(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string][]string{
		"an old month with one copied row": {
			`SELECT add_month('consent_records', (now() - interval '84 months')::date)`,
			`INSERT INTO consent_records SELECT workspace_id, seq, recorded_at - interval '84 months', id, phone_e164,
				contact_id, kind, source, actor, reason, evidence, call_id,
				before, after, occurred_at, key_id, mac FROM consent_records WHERE workspace_id = $1 AND seq = 4`,
		},
		"an old month with all rows copied": {
			`SELECT add_month('consent_records', (now() - interval '84 months')::date)`,
			`INSERT INTO consent_records SELECT workspace_id, seq, recorded_at - interval '84 months', id, phone_e164,
				contact_id, kind, source, actor, reason, evidence, call_id,
				before, after, occurred_at, key_id, mac FROM consent_records WHERE workspace_id = $1`,
		},
		"a replaced function": {
			`CREATE OR REPLACE FUNCTION oldest_month(parent text, before date) RETURNS date
				LANGUAGE sql STABLE AS $f$ SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date WHERE EXISTS (SELECT 1
				FROM consent_records) $f$`,
			`CREATE OR REPLACE FUNCTION drop_month(parent text, month date) RETURNS boolean
				LANGUAGE sql SECURITY DEFINER AS $f$ SELECT true $f$`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t)
			r.writeHeadLog()
			r.requireIntact()
			r.exec(harm...)
			now, err := r.archive.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := retention.New(r.store, r.archive, retention.Config{}).RotateMonths(t.Context(),
				now.AddDate(40, 0, 0)); !errors.Is(err, store.ErrMonthKept) {
				t.Errorf("RotateMonths = %v, want ErrMonthKept", err)
			}
			r.exec(`DELETE FROM consent_records WHERE workspace_id = $1 AND seq <= 4`)
			r.requireBreak("row 1: is missing")
		})
	}
}
