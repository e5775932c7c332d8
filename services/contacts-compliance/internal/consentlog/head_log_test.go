package consentlog_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
)

func TestHeadLog_NewFileContainsEveryChain(t *testing.T) {
	t.Parallel()
	for name, rotate := range map[string]func(log string) error{
		"moved":     func(log string) error { return os.Rename(log, log+".1") },
		"truncated": func(log string) error { return os.Truncate(log, 0) },
	} {
		r := newFixture(t)
		r.writeHeadLog()
		if err := rotate(r.logPath); err != nil {
			t.Fatal(err)
		}
		r.writeHeadLog()
		r.requireIntact()
		r.exec(`DELETE FROM consent_records WHERE workspace_id = $1`, `DELETE FROM consent_heads WHERE workspace_id = $1`)
		t.Log(name)
		r.requireBreak("row 1: is missing; the head log has 5 rows")
	}
}

// A person with access to the database can hide new rows from the head log. After five minutes,
// verify must report the rows that are not in the log.
func TestVerify_ReportsOldRowsThatAreNotInTheHeadLog(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.writeHeadLog()
	hidden, at := uuid.Must(uuid.NewV7()), consentchain.Link{}
	for n := range 2 {
		number, id, before, after := "+15005550001", uuid.Must(uuid.NewV7()), "unknown", "dnd"
		row := consentchain.Row{WorkspaceID: hidden, RecordedAt: time.Now().Add(
			-time.Duration(20-19*n) * time.Minute).Truncate(time.Microsecond), ID: uuid.Must(
			uuid.NewV7()), Number: &number, ContactID: &id,
			Kind: "opt_out", Source: "api", Actor: "a", Before: &before, After: &after,
			OccurredAt: time.Now().Truncate(time.Microsecond)}
		at = row.Sign(r.keys, at)
		if _, err := r.super.Exec(t.Context(),
			`INSERT INTO consent_records (workspace_id, seq, recorded_at, id, phone_e164, contact_id, kind, source, actor,
				before, after, occurred_at, key_id, mac)
			VALUES (@ws, @seq, @recorded, @id, @number, @contact, 'opt_out', 'api', 'a', 'unknown', 'dnd', @occurred, @key,
				@mac)`, pg.Args{"ws": hidden, "seq": row.Seq, "recorded": row.RecordedAt,
				"id": row.ID, "number": number, "contact": id, "occurred": row.OccurredAt, "key": row.KeyID,
				"mac": row.MAC}); err != nil {
			t.Fatal(err)
		}
	}
	r.addContact(hidden, "+15005550001", "dnd")
	head := r.keys.SignHead(hidden, at)
	if _, err := r.super.Exec(t.Context(), `INSERT INTO consent_heads VALUES ($1, $2, $3, '2001-01-01', $4, $5)`, hidden,
		head.Seq, head.MAC, head.KeyID, head.Sum); err != nil {
		t.Fatal(err)
	}
	r.exec(`CREATE FUNCTION hide() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN NEW.moved_at := '2001-01-01';
		RETURN NEW; END $f$`,
		`CREATE TRIGGER hide BEFORE INSERT OR UPDATE ON consent_heads FOR EACH ROW EXECUTE FUNCTION hide()`)
	r.writeHeadLog()
	r.requireBreak("row 1 (")
	r.requireBreak("the head log has 0 rows")
	for range 30 { // one of 30 writes reads all heads
		r.writeHeadLog()
	}
	r.requireIntact()
	for n := range 2 {
		r.record(contacts.Change{WorkspaceID: r.ours, Number: "+15005550007", Kind: contacts.OptOut, Source: "api",
			Actor: fmt.Sprint(n)})
	}
	for range 30 {
		r.writeHeadLog()
	}
	r.exec(`DELETE FROM consent_records WHERE workspace_id = $1 AND seq > 5`,
		`UPDATE consent_heads h SET seq = r.seq, mac = r.mac FROM consent_records r WHERE h.workspace_id = $1
			AND r.workspace_id = $1 AND r.seq = 5`)
	r.requireBreak("row 6: is missing; the head log has 7 rows")
}
