package consentlog_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/consentlog"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// Records that were written before there were chains go into them behind a row that says so, however it comes to that.
func TestBeginChains_TakesWhatWasThereBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	byRecord, byPruner := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	for _, workspace := range []uuid.UUID{byRecord, byPruner} {
		if _, err := r.super.Exec(t.Context(), `INSERT INTO contacts (id, workspace_id, phone_e164, dnd_status, updated_at)
			SELECT gen_random_uuid(), $1, '+1500555' || 1000 + n, 'dnd', now() FROM generate_series(1, 1234) n`, workspace); err != nil {
			t.Fatal(err)
		}
		if _, err := r.super.Exec(t.Context(), `INSERT INTO consent_unchained (id, workspace_id, phone_e164, contact_id, kind, source, actor, evidence, before, after, occurred_at)
			SELECT gen_random_uuid(), $1, '+1500555' || 1000 + n, gen_random_uuid(), 'opt_out', 'api', 'request:x', '{"n": 1}', 'unknown', 'dnd', now() FROM generate_series(1, 1234) n`, workspace); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := r.verify(); err == nil || !strings.Contains(said, "2468 rows from before the chains") {
		t.Errorf("verify: %v %s", err, said) // there is no head log yet
	}
	r.record(contacts.Change{WorkspaceID: byRecord, Number: "+15005550001", Kind: contacts.OptOut, Source: "api", Actor: "a"})
	pruner := consentlog.NewPartitionJob(r.store, r.archive, consentlog.PartitionConfig{})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := pruner.Prune(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	r.write()
	r.whole()
	for workspace, want := range map[uuid.UUID]int{byRecord: 1236, byPruner: 1235} {
		var rows, left int
		var evidence []byte
		if err := r.super.QueryRow(t.Context(), `SELECT count(*), (SELECT count(*) FROM consent_unchained), (SELECT evidence FROM consent_records WHERE workspace_id = $1 AND seq = 1 AND kind = 'chain_started')
			FROM consent_records WHERE workspace_id = $1`, workspace).Scan(&rows, &left, &evidence); err != nil {
			t.Fatal(err)
		}
		var said consentchain.Beginning
		err := json.Unmarshal(evidence, &said)
		if err != nil {
			t.Fatalf("%d rows, %d left, beginning %s: error = %v", rows, left, evidence, err)
		}
		if rows != want {
			t.Errorf("%d rows, %d left, beginning %s: rows = %v, want %v", rows, left, evidence, rows, want)
		}
		if left != 0 {
			t.Errorf("%d rows, %d left, beginning %s: left = %v, want 0", rows, left, evidence, left)
		}
		if said.Rows != 1234 {
			t.Errorf("%d rows, %d left, beginning %s: said.Rows = %v, want 1234", rows, left, evidence, said.Rows)
		}
		if got := len(said.SHA256); got != 64 {
			t.Fatalf("%d rows, %d left, beginning %s: length of said.SHA256 = %v, want 64", rows, left, evidence, got)
		}
	}
	listed, err := r.store.Records(t.Context(), byPruner, "+15005551007", page.Request{Limit: 100})
	if err != nil {
		t.Fatalf("records of a number: error = %v", err)
	}
	if got := len(listed); got != 1 {
		t.Fatalf("records of a number: length of listed = %v, want 1", got)
	}
	if listed[0].Before != "unknown" {
		t.Errorf("records of a number: listed[0].Before = %v, want unknown", listed[0].Before)
	}
	r.do(`UPDATE consent_records SET evidence = '{"rows": 1233}' WHERE kind = 'chain_started' AND workspace_id = '` + byPruner.String() + `'`)
	r.broken("row 1 (")
}

// A month that is dropped leaves its chains' last rows as their starts, and nothing younger than five years is dropped.
func TestTurnMonths_ADroppedMonthIsNoBreak(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now, err := r.archive.Clock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	long := uuid.Must(uuid.NewV7()) // rows of seven, six and a half, and four years ago
	at := consentchain.Link{}
	for _, age := range []int{84, 84, 78, 48} {
		month := time.Date(now.Year(), now.Month()-time.Month(age), 1, 0, 0, 0, 0, time.UTC)
		if _, err := r.archive.AddMonths(t.Context(), month, month); err != nil {
			t.Fatal(err)
		}
		number, id, before, after := "+15005550001", uuid.Must(uuid.NewV7()), "unknown", "dnd"
		row := consentchain.Row{WorkspaceID: long, RecordedAt: month.Add(time.Hour), ID: uuid.Must(uuid.NewV7()), Number: &number, ContactID: &id, Kind: "opt_out", Source: "api", Actor: "a",
			Before: &before, After: &after, OccurredAt: month}
		at = row.Sign(r.keys, at)
		if _, err := r.super.Exec(t.Context(), `INSERT INTO consent_records (workspace_id, seq, recorded_at, id, phone_e164, contact_id, kind, source, actor, before, after, occurred_at, key_id, mac)
			VALUES (@ws, @seq, @recorded, @id, @number, @contact, 'opt_out', 'api', 'a', 'unknown', 'dnd', @occurred, @key, @mac)`, pg.Args{"ws": long, "seq": row.Seq, "recorded": row.RecordedAt,
			"id": row.ID, "number": number, "contact": id, "occurred": row.OccurredAt, "key": row.KeyID, "mac": row.MAC}); err != nil {
			t.Fatal(err)
		}
	}
	r.person(long, "+15005550001", "dnd")
	head := r.keys.Head(long, at)
	if _, err := r.super.Exec(t.Context(), `INSERT INTO consent_heads VALUES ($1, $2, $3, now(), $4, $5)`, long, head.Seq, head.MAC, head.KeyID, head.Sum); err != nil {
		t.Fatal(err)
	}
	r.write()
	r.whole()
	pruner := consentlog.NewPartitionJob(r.store, r.archive, consentlog.PartitionConfig{Records: time.Hour, Decisions: time.Hour}) // the least is five years all the same
	for range 2 {
		if err := pruner.TurnMonths(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := r.super.QueryRow(t.Context(), `SELECT count(*) FROM consent_records WHERE workspace_id = $1`,
			long).Scan(&left); err != nil {
			t.Fatalf("QueryRow: %v", err)
		} else if left != 1 {
			t.Fatalf("left = %v, want 1", left)
		}
		r.whole()
	}
	r.record(contacts.Change{WorkspaceID: long, Number: "+15005550001", Kind: contacts.OptOutRemoved, Source: "api", Actor: "a"})
	r.whole()
	if _, err := r.archive.DropMonths(t.Context(), "consent_records", now); err == nil {
		t.Error("dropping four years ago: DropMonths = nil, want an error")
	} else if !strings.Contains(err.Error(), "five years") {
		t.Errorf(`dropping four years ago: err = %q, want it to contain "five years"`, err.Error())
	}
	r.whole()
	if _, err := r.super.Exec(t.Context(), `UPDATE consent_starts SET seq = 2 WHERE workspace_id = $1`, long); err != nil {
		t.Fatal(err)
	}
	r.broken("its start behind row 2")
}

// Who rules the database makes a month of seven years ago with a copy of the newest row in it, or says by months_oldest that this month is old: the
// pruner signs no start there, and what is then deleted is missed.
func TestTurnMonths_NoStartIsSignedThatIsNoEnd(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string][]string{
		"a month made up": {
			`SELECT months_add('consent_records', (now() - interval '84 months')::date)`,
			`INSERT INTO consent_records SELECT workspace_id, seq, recorded_at - interval '84 months', id, phone_e164, contact_id, kind, source, actor, reason, evidence, call_id,
				before, after, occurred_at, key_id, mac FROM consent_records WHERE workspace_id = $1 AND seq = 4`,
		},
		"a month made up with all of them": {
			`SELECT months_add('consent_records', (now() - interval '84 months')::date)`,
			`INSERT INTO consent_records SELECT workspace_id, seq, recorded_at - interval '84 months', id, phone_e164, contact_id, kind, source, actor, reason, evidence, call_id,
				before, after, occurred_at, key_id, mac FROM consent_records WHERE workspace_id = $1`,
		},
		"a function that lies": {
			`CREATE OR REPLACE FUNCTION months_oldest(parent text, before date) RETURNS date LANGUAGE sql STABLE AS $f$ SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date WHERE EXISTS (SELECT 1 FROM consent_records) $f$`,
			`CREATE OR REPLACE FUNCTION months_drop(parent text, month date) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $f$ SELECT true $f$`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.write()
			r.whole()
			r.do(harm...)
			now, err := r.archive.Clock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := consentlog.NewPartitionJob(r.store, r.archive, consentlog.PartitionConfig{}).TurnMonths(t.Context(), now.AddDate(40, 0, 0)); !errors.Is(err, store.ErrKept) {
				t.Errorf("turning the months: %v, want that the month is kept", err)
			}
			r.do(`DELETE FROM consent_records WHERE workspace_id = $1 AND seq <= 4`)
			r.broken("row 1: is missing")
		})
	}
}
