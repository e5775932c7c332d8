package imports_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/consentlog"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/imports"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

const schema = "contacts_compliance"

type fixture struct {
	*testing.T
	pool      *pgxpool.Pool
	keys      *consentchain.Keys
	store     *store.Store
	importer  *imports.Importer
	workspace uuid.UUID
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	keys, err := consentchain.NewKeys(nil, "test")
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: store.Migrations})
	st := store.New(pool, keys)
	return &fixture{T: t, pool: pool, keys: keys, store: st, importer: imports.New(st), workspace: uuid.Must(uuid.NewV7())}
}

func (r *fixture) start(file string, pieces int) uuid.UUID {
	r.Helper()
	opened, err := r.store.OpenImport(r.Context(), r.workspace, "operator:ann", nil)
	if err != nil {
		r.Fatal(err)
	}
	size := len(file)/pieces + 1
	for n := pieces; n > 0; n-- {
		piece := file[min((n-1)*size, len(file)):min(n*size, len(file))]
		if _, err := r.store.PutPart(r.Context(), r.workspace, opened.ID, n, []byte(piece)); err != nil {
			r.Fatal(err)
		}
	}
	if _, missing, err := r.store.StartImport(r.Context(), r.workspace, opened.ID); err != nil {
		r.Fatalf("start: StartImport: %v", err)
	} else if missing != 0 {
		r.Fatalf("start: missing = %v, want 0", missing)
	}
	return opened.ID
}

func (r *fixture) runNext() {
	r.Helper()
	if more, err := r.importer.RunNext(r.Context()); err != nil {
		r.Fatalf("RunNext: %v", err)
	} else if !more {
		r.Fatal("RunNext: more = false, want true")
	}
}

func (r *fixture) importByID(id uuid.UUID) store.Import {
	r.Helper()
	known, err := r.store.Import(r.Context(), r.workspace, id)
	if err != nil {
		r.Fatal(err)
	}
	return known
}

func (r *fixture) count(sql string, args ...any) (n int) {
	r.Helper()
	if err := r.pool.QueryRow(r.Context(), sql, args...).Scan(&n); err != nil {
		r.Fatal(err)
	}
	return n
}

func (r *fixture) recordChange(number phone.Number, kind contacts.Kind) {
	r.Helper()
	if _, err := r.store.Record(r.Context(), contacts.Change{WorkspaceID: r.workspace, Number: number, Kind: kind,
		Source: "api", Actor: "a"}, store.CreateUnknown); err != nil {
		r.Fatal(err)
	}
}

func (r *fixture) requireIntact() {
	r.Helper()
	var out bytes.Buffer
	if err := consentlog.Verify(r.Context(), store.NewArchive(r.pool, r.keys), r.keys, "", &out); err != nil {
		r.Errorf("verify = %v, want nil\n%s", err, out.String())
	}
}

func listFile(numbers int) string {
	var file strings.Builder
	file.WriteString("name,phone_e164\n")
	for n := range numbers {
		fmt.Fprintf(&file, "Person %d,+1415%07d\n", n, n)
		if n%1000 == 0 {
			fmt.Fprintf(&file, "Person %d,+1415%07d\nNobody,4155\n", n, n)
		}
	}
	return file.String()
}

const countOptedOut = `SELECT count(*) FROM contacts WHERE workspace_id = $1 AND dnd_status = 'dnd'`

func TestImport_OptsOutAllNumbersAndStoresASingleRecord(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	// the opt-out of this number was removed before the import
	r.recordChange("+14150000007", contacts.OptOutRemoved)
	file := listFile(12_345)
	id := r.start(file, 7)
	r.runNext()
	done := r.importByID(id)
	sum := sha256.Sum256([]byte(file))
	if done.Status != store.Done {
		t.Errorf("import: done.Status = %v, want %v", done.Status, store.Done)
	}
	if done.Numbers != 12_345 {
		t.Errorf("import: done.Numbers = %v, want 12_345", done.Numbers)
	}
	if done.Applied != 12_345 {
		t.Errorf("import: done.Applied = %v, want 12_345", done.Applied)
	}
	if done.Bad != 13 {
		t.Errorf("import: done.Bad = %v, want 13", done.Bad)
	}
	if done.Lines != 12_345+26+1 {
		t.Errorf("import: done.Lines = %v, want %v", done.Lines, 12_345+26+1)
	}
	if got := *done.FileSHA256; got != hex.EncodeToString(sum[:]) {
		t.Errorf("import: *done.FileSHA256 = %v, want %v", got, hex.EncodeToString(sum[:]))
	}
	if done.DoneAt == nil {
		t.Fatalf("import = %+v, want done_at", done)
	}
	checkBadRows(t, done)
	if n := r.count(countOptedOut, r.workspace); n != 12_345 {
		t.Errorf("opted-out contacts = %d, want 12345", n)
	}
	for _, number := range []phone.Number{"+14150000007", "+14150012344"} {
		r.checkRecord(t, number, done)
	}
	if records, err := r.store.Records(t.Context(), r.workspace, "+14159999999", page.Request{Limit: 100}); err != nil {
		t.Errorf("records of a number on no list: %v", err)
	} else if len(records) != 0 {
		t.Errorf("records of a number on no list: records = %v, want none", records)
	}
	if n := r.count(`SELECT count(*) FROM consent_records`) +
		r.count(`SELECT count(*) FROM opt_out_import_parts`); n != 2 {
		t.Errorf("records and parts = %d, want 2: the removal and the import", n)
	}
	r.requireIntact()
}

func checkBadRows(t *testing.T, done store.Import) {
	t.Helper()
	var bad []imports.BadLine
	err := json.Unmarshal(done.BadRows, &bad)
	if err != nil {
		t.Fatalf("bad rows: error = %v", err)
	}
	if got := len(bad); got != 13 {
		t.Fatalf("bad rows: length of bad = %v, want 13", got)
	}
	if bad[1].Line != 1006 {
		t.Errorf("bad rows: bad[1].Line = %v, want 1006", bad[1].Line)
	}
	if bad[1].Value != "4155" {
		t.Errorf("bad rows: bad[1].Value = %v, want 4155", bad[1].Value)
	}
	if bad[1].Reason == "" {
		t.Errorf("reason of bad rows %s is empty: %v", done.BadRows, err)
	}
}

func (r *fixture) checkRecord(t *testing.T, number phone.Number, done store.Import) {
	t.Helper()
	records, err := r.store.Records(t.Context(), r.workspace, number, page.Request{Limit: 100})
	if err != nil {
		t.Fatalf("error = %v", err)
	}
	if len(records) == 0 {
		t.Fatalf("records of %s = %+v, %v, want the record of the import", number, records, err)
	}
	if records[0].ID != *done.RecordID {
		t.Errorf("records[0].ID = %v, want %v", records[0].ID, *done.RecordID)
	}
	if records[0].Source != "import" {
		t.Errorf("records[0].Source = %v, want import", records[0].Source)
	}
	if records[0].Number != "" {
		t.Errorf("records[0].Number = %v, want \"\"", records[0].Number)
	}
	if records[0].After != "dnd" {
		t.Errorf("records[0].After = %v, want dnd", records[0].After)
	}
	if !strings.Contains(string(records[0].Evidence), *done.ListSHA256) {
		t.Errorf("got %s, want it to contain %q", string(records[0].Evidence), *done.ListSHA256)
	}
}

func TestImport_RepeatedFileChangesNothing(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	file := listFile(12_345)
	id := r.start(file, 7)
	r.runNext()

	same := r.start(file, 3)
	r.runNext()
	again := r.importByID(same)
	if again.Status != store.Done {
		t.Errorf("the same file again: again.Status = %v, want %v", again.Status, store.Done)
	}
	if again.SameAs == nil {
		t.Fatalf("the same file again = %+v, want it to change nothing", again)
	}
	if got := *again.SameAs; got != id {
		t.Errorf("the same file again: *again.SameAs = %v, want %v", got, id)
	}
	if again.RecordID != nil {
		t.Errorf("the same file again: again.RecordID = %v, want nil", again.RecordID)
	}
	r.recordChange("+14150000007", contacts.OptOutRemoved)
	once := r.start(file, 3)
	r.runNext()
	if again := r.importByID(once); again.RecordID == nil {
		t.Error("the same file after a removal: again.RecordID = nil, want a value")
	} else if got := r.count(countOptedOut, r.workspace); got != 12_345 {
		t.Errorf("the same file after a removal: opted-out contacts = %v, want 12345", got)
	}
	if n := r.count(`SELECT count(*) FROM consent_records`); n != 3 {
		t.Errorf("records = %d, want 3: a removal and two imports", n)
	}
	r.requireIntact()
	if more, err := r.importer.RunNext(t.Context()); err != nil {
		t.Errorf("RunNext without work: %v", err)
	} else if more {
		t.Error("RunNext without work: more = true, want false")
	}
}

// The process of an import can die or lose its claim at any point. The result must be the same as
// without an interruption.
func TestImport_InterruptionDoesNotChangeTheResult(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	id := r.start(listFile(25_000), 5)
	broken := 0
	// each process is canceled after twice the time of the previous process
	for pause := time.Millisecond; r.importByID(id).Status != store.Done; pause *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), pause)
		if _, err := r.importer.RunNext(ctx); err != nil {
			broken++
		}
		cancel()
		if _, err := r.pool.Exec(t.Context(),
			`UPDATE opt_out_imports SET claimed_until = NULL WHERE status <> 'done'`); err != nil {
			t.Fatal(err)
		}
	}
	done := r.importByID(id)
	n := r.count(countOptedOut, r.workspace)
	if n != 25_000 {
		t.Errorf("%d opted out after %d interruptions: n = %v, want 25_000", n, broken, n)
	}
	if done.Numbers != 25_000 {
		t.Errorf("%d opted out after %d interruptions: done.Numbers = %v, want 25_000", n, broken, done.Numbers)
	}
	if done.Applied != 25_000 {
		t.Errorf("%d opted out after %d interruptions: done.Applied = %v, want 25_000", n, broken, done.Applied)
	}
	if done.Bad != 25 {
		t.Errorf("%d opted out after %d interruptions: done.Bad = %v, want 25", n, broken, done.Bad)
	}
	if broken < 3 {
		t.Errorf("%d opted out after %d interruptions, want at least 3 interruptions: %+v", n, broken, done)
	}
	if n := r.count(`SELECT count(*) FROM consent_records`); n != 1 {
		t.Errorf("records = %d, want 1", n)
	}
	list := sha256.New()
	numbers, err := r.store.NumbersAfter(t.Context(), id, "", 30_000)
	if err != nil {
		t.Fatalf("error = %v", err)
	}
	if got := len(numbers); got != 25_000 {
		t.Fatalf("length of numbers = %v, want 25_000", got)
	}
	if !slices.IsSorted(numbers) {
		t.Fatalf("slices.IsSorted(numbers) = false, want true")
	}
	for _, number := range numbers {
		list.Write([]byte(number + "\n"))
	}
	if *done.ListSHA256 != hex.EncodeToString(list.Sum(nil)) {
		t.Error("ListSHA256 differs from the digest of the numbers")
	}
	r.requireIntact()
}

// The consent record of an import covers its list, so verify must detect added and removed numbers.
func TestVerify_FindsAChangedImportList(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	id := r.start(listFile(10), 1)
	r.runNext()
	r.requireIntact()
	super := pgtest.Super(t, r.pool, schema)
	for _, table := range []string{"opt_out_imports", "opt_out_import_numbers"} {
		if _, err := super.Exec(t.Context(), `ALTER TABLE `+table+` DISABLE TRIGGER ALL`); err != nil {
			t.Fatal(err)
		}
	}
	for _, harm := range [][2]string{
		{`DELETE FROM opt_out_import_numbers WHERE phone_e164 = '+14150000003'`,
			`INSERT INTO opt_out_import_numbers VALUES ($1, '+14150000003')`},
		{`INSERT INTO opt_out_import_numbers VALUES ($1, '+14150000099')`,
			`DELETE FROM opt_out_import_numbers WHERE phone_e164 = '+14150000099'`},
		// verify does not use this column, because the record contains the digest
		{`UPDATE opt_out_imports SET list_sha256 = 'x' WHERE id = $1`, ``},
	} {
		do := func(sql string) {
			t.Helper()
			var args []any
			if strings.Contains(sql, "$1") {
				args = append(args, id)
			}
			if _, err := super.Exec(t.Context(), sql, args...); err != nil {
				t.Fatal(err)
			}
		}
		do(harm[0])
		var out bytes.Buffer
		err := consentlog.Verify(t.Context(), store.NewArchive(r.pool, r.keys), r.keys, "", &out)
		if found := strings.Contains(out.String(), "row 1 (") && err != nil; found != (harm[1] != "") {
			t.Errorf("%s: %v\n%s", harm[0], err, out.String())
		}
		if harm[1] != "" {
			do(harm[1])
		}
	}
	r.requireIntact()
}

func TestApplyNumbers_ChangesNothingAfterTheClaimIsLost(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.start(listFile(10), 1)
	mine, ok, err := r.store.ClaimImport(t.Context())
	if err != nil {
		t.Fatalf("ClaimImport: %v", err)
	}
	if !ok {
		t.Fatal("ok = false, want true")
	}
	if _, ok, err := r.store.ClaimImport(t.Context()); err != nil {
		t.Fatalf("second claim: ClaimImport: %v", err)
	} else if ok {
		t.Fatal("second claim: ok = true, want false")
	}
	if _, err := r.pool.Exec(t.Context(), `UPDATE opt_out_imports SET claimed_until = NULL`); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := r.store.ClaimImport(t.Context()); err != nil {
		t.Fatalf("expired claim: ClaimImport: %v", err)
	} else if !ok {
		t.Fatal("expired claim: ok = false, want true")
	}
	err = r.store.ApplyNumbers(t.Context(), &mine, []string{"+14150000001"})
	if err == nil {
		t.Fatalf("ApplyNumbers = %v, want an error; %d opted out", err, r.count(countOptedOut, r.workspace))
	}
	if got := r.count(countOptedOut, r.workspace); got != 0 {
		t.Errorf("ApplyNumbers: r.count(opted, r.workspace) = %v, want 0", got)
	}
	if mine.Applied != 0 {
		t.Errorf("ApplyNumbers: mine.Applied = %v, want 0", mine.Applied)
	}
	sum := "x"
	mine.FileSHA256, mine.ListSHA256 = &sum, &sum
	for method, do := range map[string]func(context.Context, *store.Import) error{"RenewClaim": r.store.RenewClaim,
		"FinishReading": r.store.FinishReading, "FinishImport": r.store.FinishImport} {
		if err := do(t.Context(), &mine); !errors.Is(err, store.ErrClaimLost) {
			t.Errorf("%s = %v, want ErrClaimLost", method, err)
		}
	}
	if got := r.count(`SELECT count(*) FROM consent_records`); got != 0 {
		t.Errorf("after the claim was lost: consent records = %v, want 0", got)
	} else if got := r.importByID(mine.ID).Status; got != store.Reading {
		t.Errorf("after the claim was lost: status = %v, want %v", got, store.Reading)
	}
	if _, err := r.store.PutPart(t.Context(), r.workspace, mine.ID, 2,
		[]byte("x")); err != store.ErrImportStarted { //nolint:errorlint // the store returns this error unwrapped
		t.Errorf("PutPart after the start = %v, want ErrImportStarted", err)
	}
}

// The long steps take longer than the lifetime of a claim. No other process may claim the import
// during these steps.
func TestImport_KeepsItsClaimDuringLongSteps(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.start(listFile(10), 1)
	mine, _, err := r.store.ClaimImport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Exec(t.Context(),
		`UPDATE opt_out_imports SET claimed_until = now() - interval '1 second'`); err != nil {
		t.Fatal(err)
	}
	if err := r.store.RenewClaim(t.Context(), &mine); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := r.store.ClaimImport(t.Context()); err != nil {
		t.Errorf("ClaimImport: %v", err)
	} else if ok {
		t.Error("ClaimImport: ok = true, want false")
	}
	if _, err := r.pool.Exec(t.Context(), `UPDATE opt_out_imports SET claimed_until = NULL`); err != nil {
		t.Fatal(err)
	}
	lock, err := r.pool.Begin(t.Context()) // FinishImport waits for the lock of the chain's head
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := lock.Exec(t.Context(), `LOCK TABLE consent_heads IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	sum, done := consentchain.NewListHash().Hex(), make(chan error, 1)
	mine.FileSHA256, mine.ListSHA256 = &sum, &sum
	go func() { done <- r.store.FinishImport(t.Context(), &mine) }()
	for r.count(`SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'consent_heads'::regclass`) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("FinishImport does not wait for the head")
		}
	}
	if _, ok, err := r.store.ClaimImport(t.Context()); err != nil {
		t.Errorf("ClaimImport: %v", err)
	} else if ok {
		t.Error("ClaimImport: ok = true, want false")
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDeleteIdleImports_DeletesOnlyImportsThatWereNotStarted(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	started := r.start(listFile(1), 1)
	opened, err := r.store.OpenImport(t.Context(), r.workspace, "operator:ann", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.PutPart(t.Context(), r.workspace, opened.ID, 1, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if deleted, err := r.store.DeleteIdleImports(t.Context(), time.Hour); err != nil {
		t.Errorf("DeleteIdleImports: %v", err)
	} else if deleted != 0 {
		t.Errorf("DeleteIdleImports = %v, want 0", deleted)
	}
	deleted, err := r.store.DeleteIdleImports(t.Context(), 0)
	if err != nil {
		t.Fatalf("error = %v", err)
	}
	if deleted != 1 {
		t.Errorf("gone = %v, want 1", deleted)
	}
	if got := r.count(`SELECT count(*) FROM opt_out_import_parts`); got != 1 {
		t.Errorf("parts = %v, want 1", got)
	}
	r.importByID(started)
}

// The opt-out of a number is removed while the import runs. After the import, the number must be
// opted out again.
func TestFinishImport_OptsOutNumbersWhoseOptOutWasRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	id := r.start(listFile(10), 1)
	mine, _, err := r.store.ClaimImport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	numbers := []string{"+14150000001", "+14150000002"}
	if err := r.store.AddNumbers(t.Context(), &mine, numbers); err != nil {
		t.Fatal(err)
	}
	list := consentchain.NewListHash()
	for _, number := range numbers {
		list.Add(number)
	}
	sum := list.Hex()
	mine.FileSHA256, mine.ListSHA256 = &sum, &sum
	if err := r.store.FinishReading(t.Context(), &mine); err != nil {
		t.Fatal(err)
	}
	if err := r.store.ApplyNumbers(t.Context(), &mine, numbers); err != nil {
		t.Fatal(err)
	}
	r.recordChange("+14150000002", contacts.OptOutRemoved)
	r.recordChange("+14150000003", contacts.OptOutRemoved) // this number is not in the list
	if err := r.store.FinishImport(t.Context(), &mine); err != nil {
		t.Fatal(err)
	}
	if n := r.count(countOptedOut, r.workspace); n != 2 {
		t.Errorf("count: n = %v, want 2", n)
	} else if got := r.importByID(id).Status; got != store.Done {
		t.Errorf("count: r.read(id).Status = %v, want %v", got, store.Done)
	}
	r.requireIntact()
}
