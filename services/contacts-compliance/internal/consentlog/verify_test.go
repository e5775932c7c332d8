package consentlog_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/consentlog"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

const schema = "contacts_compliance"

type fixture struct {
	*testing.T
	keys     *consentchain.Keys
	store    *store.Store
	archive  *store.Archive
	super    *pgxpool.Pool
	headLog  *consentlog.HeadLog
	logPath  string
	ours     uuid.UUID
	others   uuid.UUID
	recorded int
}

func keys(t *testing.T, secret string) *consentchain.Keys {
	t.Helper()
	parsed, err := consentchain.NewKeys(nil, secret)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: store.Migrations})
	r := &fixture{T: t, keys: keys(t, "ours"), super: pgtest.Super(t, pool, schema),
		logPath: filepath.Join(t.TempDir(), "heads.log")}
	r.store, r.archive = store.New(pool, r.keys), store.NewArchive(pool, r.keys)
	r.headLog = consentlog.NewHeadLog(r.archive, r.keys, consentlog.HeadLogConfig{Path: r.logPath},
		prometheus.NewRegistry())
	r.ours, r.others = uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	reason := "asked by mail"
	for _, workspace := range []uuid.UUID{r.ours, r.others} {
		for n, kind := range []contacts.Kind{contacts.OptOut, contacts.ConsentGranted, contacts.OptOutRemoved,
			contacts.ConsentWithdrawn, contacts.OptOut} {
			change := contacts.Change{WorkspaceID: workspace, Number: phone.Number(fmt.Sprintf("+1500555000%d", n%2)),
				Kind: kind, Source: "api", Actor: "operator:ann",
				Reason: &reason, Evidence: json.RawMessage(`{"said": "no more"}`),
				OccurredAt: time.Date(2026, 6, 15, 12, 0, n, 0, time.UTC)}
			if n == 4 {
				change.CallID, change.Source = uuid.Must(uuid.NewV7()), contacts.SourceCall
			}
			r.record(change)
		}
	}
	return r
}

func (r *fixture) record(change contacts.Change) {
	r.Helper()
	if _, err := r.store.Record(r.Context(), change, store.CreateUnknown); err != nil {
		r.Fatal(err)
	}
	r.recorded++
}

func (r *fixture) writeHeadLog() {
	r.Helper()
	if err := r.headLog.Write(r.Context()); err != nil {
		r.Fatal(err)
	}
}

func (r *fixture) verify() (string, error) {
	r.Helper()
	var out bytes.Buffer
	err := consentlog.Verify(r.Context(), r.archive, r.keys, r.logPath, &out)
	if err != nil && !errors.Is(err, consentlog.ErrBroken) {
		r.Fatalf("verify: %v", err)
	}
	r.checkJSON(out.String(), err)
	return out.String(), err
}

func (r *fixture) checkJSON(text string, textErr error) {
	r.Helper()
	var out bytes.Buffer
	err := consentlog.Verify(service.ForScript(r.Context()), r.archive, r.keys, r.logPath, &out)
	var decoded struct {
		Chains, Rows int
		HeadLog      *struct{ Lines, Cut, Chains int } `json:"head_log"`
		Broken       []string
	}
	if textErr := json.Unmarshal(out.Bytes(), &decoded); textErr != nil {
		r.Fatalf("json.Unmarshal: %v", textErr)
	} else if decoded.Broken == nil {
		r.Fatalf("broken = nil, want a list; output = %s", out.String())
	}
	head := "head log: none"
	if decoded.HeadLog != nil {
		head = fmt.Sprintf("head log: %d lines (%d incomplete), %d chains\n", decoded.HeadLog.Lines, decoded.HeadLog.Cut,
			decoded.HeadLog.Chains)
	}
	sum := fmt.Sprintf("consent records: %d rows in %d chains, ", decoded.Rows, decoded.Chains)
	if !errors.Is(err, textErr) {
		r.Errorf("JSON output = %s with error %v, text output = %s with error %v", out.String(), err, text, textErr)
	}
	if !strings.HasPrefix(text, strings.Join(append(decoded.Broken, head), "\n")) {
		r.Errorf("output = %s, want it to begin with %q", text, strings.Join(append(decoded.Broken, head), "\n"))
	}
	if !strings.Contains(text, sum) {
		r.Errorf("output = %s, want it to contain %q", text, sum)
	}
}

func (r *fixture) requireIntact() {
	r.Helper()
	if output, err := r.verify(); err != nil {
		r.Fatalf("verify of unchanged records reports breaks:\n%s", output)
	}
}

func (r *fixture) requireBreak(words string) {
	r.Helper()
	output, err := r.verify()
	if err == nil {
		r.Error("verify = nil, want an error")
	} else if !strings.Contains(output, words) {
		r.Errorf("verify output = %q, want it to contain %q", output, words)
	}
}

func (r *fixture) addContact(workspace uuid.UUID, number, dnd string) {
	r.Helper()
	if _, err := r.super.Exec(r.Context(),
		`INSERT INTO contacts (id, workspace_id, phone_e164, dnd_status, updated_at) VALUES (gen_random_uuid(), $1, $2, $3,
			now())`,
		workspace, number, dnd); err != nil {
		r.Fatal(err)
	}
}

// exec runs statements as superuser. In a statement, $1 is replaced by the workspace r.ours, and $2
// by the other workspace.
func (r *fixture) exec(statements ...string) {
	r.Helper()
	for _, sql := range statements {
		sql = strings.NewReplacer("$1", "'"+r.ours.String()+"'", "$2", "'"+r.others.String()+"'").Replace(sql)
		if _, err := r.super.Exec(r.Context(), sql); err != nil {
			r.Fatalf("%s: %v", sql, err)
		}
	}
}

func TestVerify_FindsChangesMadeAsSuperuser(t *testing.T) {
	t.Parallel()
	const mine = ` WHERE workspace_id = $1`
	for _, row := range []struct {
		name  string
		harm  []string
		words string
	}{
		{name: "a row deleted", harm: []string{`DELETE FROM consent_records` + mine + ` AND seq = 3`},
			words: "row 3: is missing"},
		{name: "the first row deleted", harm: []string{`DELETE FROM consent_records` + mine + ` AND seq = 1`},
			words: "row 1: is missing"},
		{name: "a row deleted and the next rows renumbered", harm: []string{`DELETE FROM consent_records` + mine +
			` AND seq = 3`, `UPDATE consent_records SET seq = seq - 1` + mine + ` AND seq > 3`}, words: "row 3 ("},
		{name: "two rows swapped", harm: []string{`UPDATE consent_records SET seq = 100` + mine + ` AND seq = 2`,
			`UPDATE consent_records SET seq = 2` + mine + ` AND seq = 3`,
			`UPDATE consent_records SET seq = 3` + mine + ` AND seq = 100`}, words: "row 2 ("},
		{name: "a row inserted", harm: []string{`UPDATE consent_records SET seq = seq + 100` + mine + ` AND seq > 2`,
			`UPDATE consent_records SET seq = seq - 99` + mine + ` AND seq > 100`,
			`INSERT INTO consent_records SELECT workspace_id, 3, recorded_at, gen_random_uuid(), phone_e164, contact_id, kind,
				source, actor, reason, evidence, NULL, before, after, occurred_at, key_id, mac
				FROM consent_records` + mine + ` AND seq = 2`},
			words: "row 3 ("},
		{name: "a row appended",
			harm: []string{`INSERT INTO consent_records SELECT workspace_id, 6, recorded_at, gen_random_uuid(), phone_e164,
				contact_id, 'opt_out_removed', source, actor, reason, evidence, NULL, 'dnd', 'clean', occurred_at, key_id, mac
				FROM consent_records` + mine + ` AND seq = 5`}, words: "row 6 ("},
		{name: "a duplicated row",
			harm: []string{`INSERT INTO consent_records SELECT workspace_id, seq, recorded_at + interval '1 microsecond', id,
				phone_e164, contact_id, kind, source, actor, reason, evidence, call_id, before, after, occurred_at, key_id, mac
				FROM consent_records` + mine + ` AND seq = 4`}, words: "row 4 ("},
		{name: "a row replaced by a row of another workspace", harm: []string{`DELETE FROM consent_records` + mine +
			` AND seq = 2`,
			`UPDATE consent_records SET workspace_id = $1 WHERE workspace_id = $2 AND seq = 2`}, words: "row 2 ("},
		{name: "the newest row deleted", harm: []string{`DELETE FROM consent_records` + mine + ` AND seq = 5`},
			words: "row 5: is missing"},
		{name: "the newest row deleted and the head set back",
			harm: []string{`DELETE FROM consent_records` + mine + ` AND seq = 5`,
				`UPDATE consent_heads h SET seq = r.seq, mac = r.mac, key_id = r.key_id, sum = r.mac FROM consent_records r WHERE
				h.workspace_id = $1 AND r.workspace_id = $1 AND r.seq = 4`}, words: "row 5: is missing; the head log has 5"},
		{name: "all rows and the head deleted", harm: []string{`DELETE FROM consent_records` + mine,
			`DELETE FROM consent_heads` + mine},
			words: "row 1: is missing; the head log has 5"},
		{name: "the head deleted", harm: []string{`DELETE FROM consent_heads` + mine}, words: "has rows and no head"},
		{name: "older rows deleted and a start inserted",
			harm: []string{`INSERT INTO consent_starts SELECT workspace_id, seq, mac, now(), key_id, mac FROM consent_records` +
				mine + ` AND seq = 2`, `DELETE FROM consent_records` + mine + ` AND seq <= 2`}, words: "its start after row 2"},
		{name: "dnd_status of a contact changed", harm: []string{`UPDATE contacts SET dnd_status = 'clean'` + mine +
			` AND phone_e164 = '+15005550000'`}, words: "row 5 ("},
		{name: "consent_status of a contact changed", harm: []string{`UPDATE contacts SET consent_status = 'consented'` +
			mine + ` AND phone_e164 = '+15005550001'`}, words: "the state withdrawn, and the contact has the state consented"},
		{name: "an opted-out contact deleted", harm: []string{`DELETE FROM contacts` + mine +
			` AND phone_e164 = '+15005550000'`}, words: "the state dnd, and the contact has the state unknown"},
		{name: "a contact with consent inserted",
			harm: []string{`INSERT INTO contacts (id, workspace_id, phone_e164, consent_status, updated_at)
				VALUES (gen_random_uuid(), $1, '+15005550009', 'consented', now())`},
			words: "has the state consented without a record"},
		{name: "an unknown key id", harm: []string{`UPDATE consent_records SET key_id = 'mine'` + mine + ` AND seq = 4`},
			words: "row 4 ("},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t)
			r.writeHeadLog()
			r.requireIntact()
			r.exec(row.harm...)
			r.requireBreak(row.words)
		})
	}
}

// The signature must cover every column, including columns that a later migration adds.
func TestVerify_FindsAChangeOfAnyColumn(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.writeHeadLog()
	rows, err := r.super.Query(r.Context(),
		`SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'contacts_compliance'
			AND table_name = 'consent_records'`)
	if err != nil {
		t.Fatal(err)
	}
	columns := map[string]string{}
	var name, kind string
	for rows.Next() {
		if err := rows.Scan(&name, &kind); err != nil {
			t.Fatal(err)
		}
		columns[name] = kind
	}
	if len(columns) != 17 {
		t.Fatalf("%d columns: %v", len(columns), columns)
	}
	r.exec(`CREATE TABLE kept AS TABLE consent_records`,
		`ALTER TABLE consent_records DROP CONSTRAINT consent_records_axis, DROP CONSTRAINT consent_records_many,
			DROP CONSTRAINT consent_records_kind`)
	for column, kind := range columns {
		other := map[string]string{
			"uuid": `gen_random_uuid()`, "bigint": column + ` + 100`,
			"timestamp with time zone": column + ` + interval '1 microsecond'`,
			"text":                     `coalesce(` + column + `, '') || 'x'`, "json": `'{"said":"no more"}'`,
			"bytea": `set_byte(` + column + `, 31, get_byte(` + column + `, 31) # 1)`,
		}[kind]
		r.exec(`UPDATE consent_records SET ` + column + ` = ` + other + ` WHERE workspace_id = $1 AND seq = 4`)
		r.requireBreak("")
		r.exec(`DELETE FROM consent_records`, `INSERT INTO consent_records SELECT * FROM kept`)
		r.requireIntact()
	}
	// NULL is different from an empty value
	for _, column := range []string{"reason", "evidence", "call_id", "phone_e164", "before"} {
		r.exec(`UPDATE consent_records SET ` + column + ` = NULL WHERE workspace_id = $1 AND seq = 5`)
		r.requireBreak("row 5 (")
		r.exec(`DELETE FROM consent_records`, `INSERT INTO consent_records SELECT * FROM kept`)
	}
	r.requireIntact()
}

// A person with a backup can restore an earlier state of all tables. The head log must detect the
// restored state.
func TestVerify_FindsARestoredEarlierState(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.exec(`CREATE TABLE old_records AS TABLE consent_records`, `CREATE TABLE old_heads AS TABLE consent_heads`)
	r.record(contacts.Change{WorkspaceID: r.ours, Number: "+15005550007", Kind: contacts.OptOut, Source: "api",
		Actor: "a"})
	r.writeHeadLog()
	r.requireIntact()
	r.exec(`DELETE FROM consent_records`, `INSERT INTO consent_records SELECT * FROM old_records`,
		`DELETE FROM consent_heads`, `INSERT INTO consent_heads SELECT * FROM old_heads`)
	r.requireBreak("row 6: is missing; the head log has 6 rows")
	r.record(contacts.Change{WorkspaceID: r.ours, Number: "+15005550008", Kind: contacts.OptOut, Source: "api",
		Actor: "a"})
	r.requireBreak("row 6 (")
	r.requireBreak("differs from the row in the head log")
}

// Only the head is restored to an earlier state. The restored head has a valid signature.
func TestVerify_FindsARestoredEarlierHead(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.exec(`CREATE TABLE old_heads AS TABLE consent_heads`)
	r.record(contacts.Change{WorkspaceID: r.ours, Number: "+15005550000", Kind: contacts.OptOut, Source: "api",
		Actor: "a"})
	r.writeHeadLog()
	r.requireIntact()
	r.exec(`DELETE FROM consent_heads`, `INSERT INTO consent_heads SELECT * FROM old_heads`)
	r.requireBreak("is not the head (5 rows)")
}

func TestVerify_AcceptsOldSignaturesWhileTheirKeyIsConfigured(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.writeHeadLog()
	secret := func(n byte) string {
		return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32))
	}
	change := func(entries ...string) {
		t.Helper()
		parsed, err := consentchain.NewKeys(entries, "ours")
		if err != nil {
			t.Fatal(err)
		}
		r.keys = parsed
		r.store, r.archive = store.New(r.super, parsed), store.NewArchive(r.super, parsed)
		r.headLog = consentlog.NewHeadLog(r.archive, parsed, consentlog.HeadLogConfig{Path: r.logPath},
			prometheus.NewRegistry())
	}
	for n, entries := range [][]string{{"one=" + secret(1)}, {"two=" + secret(2), "one=" + secret(1)}} {
		change(entries...)
		r.record(contacts.Change{WorkspaceID: r.ours, Number: "+15005550000", Kind: contacts.OptOut, Source: "api",
			Actor: fmt.Sprint(n)})
		r.writeHeadLog()
		r.requireIntact()
	}
	change("two=" + secret(2))
	r.requireBreak(`row 6 (`)
	r.requireBreak(`key "one": signed under a key that is not configured`)
	change("two="+secret(2), "one="+secret(9)) // this entry has the old id and a different key
	r.requireBreak(`row 6 (`)
}

func TestVerify_FindsAChainSignedWithAnotherKey(t *testing.T) {
	t.Parallel()
	for _, put := range []string{"rows", "rows and head"} {
		r := newFixture(t)
		rows, err := r.super.Query(r.Context(),
			`SELECT seq, mac, key_id FROM consent_records WHERE workspace_id = $1 ORDER BY seq`, r.ours)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		forger, at := keys(t, "another"), consentchain.Link{}
		for rows.Next() {
			row := consentchain.Row{WorkspaceID: r.ours, ID: uuid.Must(uuid.NewV7()), Kind: "opt_out_removed", Source: "api",
				Actor: "x", RecordedAt: time.Now(), OccurredAt: time.Now()}
			var seq int64
			var mac []byte
			var key string
			if err := rows.Scan(&seq, &mac, &key); err != nil {
				t.Fatal(err)
			}
			at = row.Sign(forger, at)
			if _, err := r.super.Exec(r.Context(),
				`UPDATE consent_records SET mac = $3, source = 'api', actor = 'x' WHERE workspace_id = $1 AND seq = $2`, r.ours,
				seq, row.MAC); err != nil {
				t.Fatal(err)
			}
		}
		if put == "rows and head" {
			mark := forger.SignHead(r.ours, at)
			if _, err := r.super.Exec(r.Context(), `UPDATE consent_heads SET mac = $2, sum = $3 WHERE workspace_id = $1`, r.ours,
				mark.MAC, mark.Sum); err != nil {
				t.Fatal(err)
			}
		}
		r.logPath = ""
		r.requireBreak("row 1 (")
	}
}

func TestVerify_FindsAChangedHeadLog(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for n := range 3 {
		r.writeHeadLog()
		r.record(contacts.Change{WorkspaceID: r.ours, Number: "+15005550007", Kind: contacts.OptOut, Source: "api",
			Actor: fmt.Sprint(n)})
	}
	r.writeHeadLog()
	r.requireIntact()
	whole, err := os.ReadFile(r.logPath)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(whole), "\n"), "\n")
	if len(lines) != 5 {
		t.Fatalf("lines = %d, want one for each chain and one for each growth:\n%s", len(lines), whole)
	}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(r.logPath, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(strings.Join(lines[:2], "") + strings.Join(lines[3:], ""))
	r.requireBreak("lines are missing")
	put(lines[0] + lines[2] + lines[1] + lines[3] + lines[4])
	r.requireBreak("lines are missing or in another order")
	put(strings.Replace(string(whole), `"count":5`, `"count":4`, 1))
	r.requireBreak("invalid signature")
	put(string(whole)[:len(whole)-40]) // a crash can truncate the last line, so verify ignores such a line
	r.requireIntact()
	put(strings.Join(lines[2:], "")) // the first lines are missing, because older files were moved away
	r.requireIntact()
	if err := os.Remove(r.logPath); err != nil {
		t.Fatal(err)
	}
	r.requireBreak("does not exist")
	again := consentlog.NewHeadLog(r.archive, r.keys, consentlog.HeadLogConfig{Path: r.logPath}, prometheus.NewRegistry())
	if err := again.Write(r.Context()); err != nil {
		t.Fatal(err)
	}
	r.requireIntact()
}
