package reconcile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/ledger"
	"ringfence.dev/services/billing-wallet/internal/reconcile"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

type books struct{ workspace, open, captured, released uuid.UUID }

func createBooks(t *testing.T, pool *pgxpool.Pool, st *store.Store) books {
	t.Helper()
	b := books{workspace: wallettest.Workspace(t, st, 10*money.Credit)}
	for _, id := range []*uuid.UUID{&b.open, &b.captured, &b.released} {
		order := wallettest.Order(b.workspace)
		*id = order.RequestID
		if decisions, err := st.Hold(t.Context(), b.workspace, []holds.Order{order}); err != nil {
			t.Fatalf("Hold: %v", err)
		} else if decisions[0].Err != nil {
			t.Fatalf("Hold: decisions[0].Err = %v, want nil", decisions[0].Err)
		}
	}
	err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		ended := holds.Outcome{WorkspaceID: b.workspace, RequestID: b.captured, Reason: holds.Ended, BillableSeconds: 60}
		canceled := holds.Outcome{WorkspaceID: b.workspace, RequestID: b.released, Reason: holds.Canceled}
		return errors.Join(st.EnqueueOutcome(t.Context(), tx, ended), st.EnqueueOutcome(t.Context(), tx, canceled))
	})
	if err != nil {
		t.Fatal(err)
	}
	done, err := st.Settle(t.Context(), b.workspace, 10, func(*pgx.Batch, []store.Settlement) error { return nil })
	if err != nil {
		t.Fatalf("Settle: %v", err)
	}
	if len(done) != 2 {
		t.Fatalf("length of done = %d, want 2", len(done))
	}
	return b
}

func dropConstraints(t *testing.T, super *pgxpool.Pool) {
	t.Helper()
	for _, statement := range []string{
		`ALTER TABLE transactions DROP CONSTRAINT transactions_sum_to_zero, DROP CONSTRAINT transactions_shape, DROP CONSTRAINT transactions_cause`,
		`ALTER TABLE transactions DROP CONSTRAINT transactions_workspace_id_fkey`,
		`DROP INDEX transactions_reference, transactions_held, transactions_settled`,
		`ALTER TABLE wallets DROP CONSTRAINT wallets_sum_to_zero, DROP CONSTRAINT wallets_wallet_micro_check,
		   DROP CONSTRAINT wallets_held_micro_check, DROP CONSTRAINT wallets_revenue_micro_check`,
		`ALTER TABLE holds DROP CONSTRAINT holds_workspace_id_fkey, DROP CONSTRAINT holds_check, DROP CONSTRAINT holds_check1, DROP CONSTRAINT holds_check2`,
		`DROP TRIGGER holds_settled_is_final ON holds`,
	} {
		if _, err := super.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

const again = `INSERT INTO transactions (id, workspace_id, kind, reference, operator, request_id, wallet_micro, held_micro, revenue_micro, funding_micro)
	SELECT gen_random_uuid(), workspace_id, kind, reference, operator, request_id, wallet_micro, held_micro, revenue_micro, funding_micro
	FROM transactions WHERE workspace_id = @workspace AND `

// Each statement of forgeries makes rows inconsistent. The reconciliation must find the differences
// in want.
var forgeries = []struct {
	name, sql string
	want      []string
}{
	{"no row is changed", `SELECT 1`, nil},
	{"a balance and its contra account are changed",
		`UPDATE wallets SET wallet_micro = wallet_micro + 1, funding_micro = funding_micro - 1
			WHERE workspace_id = @workspace`,
		[]string{"wrong_balance: wallet: kept 9.450001, found 9.45", "wrong_balance: funding: kept -10.000001, found -10"}},
	{"a balance is raised without its contra account",
		`UPDATE wallets SET wallet_micro = wallet_micro + 1 WHERE workspace_id = @workspace`,
		[]string{"wrong_balance: wallet: kept 9.450001, found 9.45", "unbalanced_wallet: all accounts: kept 0.000001, found 0"}},
	{"the sum of the balances is too large for bigint",
		`UPDATE wallets SET wallet_micro = 9223372036854775807, revenue_micro = 9223372036854775807
			WHERE workspace_id = @workspace`,
		[]string{"wrong_balance: wallet", "wrong_balance: revenue: kept 9223372036854.775807, found 0.05", "unbalanced_wallet: all accounts: kept 18446744073700.051614, found 0"}},
	{"the wallet is overdrawn", `UPDATE wallets SET wallet_micro = -1, funding_micro = funding_micro + 9450001 WHERE workspace_id = @workspace`,
		[]string{"wrong_balance: wallet", "wrong_balance: funding", "negative_balance: wallet: kept -0.000001, found 9.45"}},
	{"held and revenue are below zero", `UPDATE wallets SET held_micro = -1, revenue_micro = -1, funding_micro = -9449998 WHERE workspace_id = @workspace`,
		[]string{"wrong_balance: held", "wrong_balance: revenue", "wrong_balance: funding", "negative_balance: held", "negative_balance: revenue", "held_is_not_holds: held: kept -0.000001, found 0.5"}},
	{"the wallet is deleted", `DELETE FROM wallets WHERE workspace_id = @workspace`,
		[]string{"missing_wallet: balances: kept none, found entries or holds"}},
	{"the ledger loses a top-up", `DELETE FROM transactions WHERE workspace_id = @workspace AND kind = 'top_up'`,
		[]string{"wrong_balance: wallet: kept 9.45, found -0.55", "wrong_balance: funding: kept -10, found 0"}},
	{"a top-up is changed", `UPDATE transactions SET wallet_micro = 11000000, funding_micro = -11000000 WHERE workspace_id = @workspace AND kind = 'top_up'`,
		[]string{"wrong_balance: wallet: kept 9.45, found 10.45", "wrong_balance: funding: kept -10, found -11"}},
	{"one entry of a top-up is changed",
		`UPDATE transactions SET wallet_micro = 11000000 WHERE workspace_id = @workspace AND kind = 'top_up'`,
		[]string{"wrong_balance: wallet", "unbalanced_transaction: <id>: kept 1, found 0"}},
	{"a top-up is in the ledger twice, and the wallet agrees",
		again + `kind = 'top_up';
			UPDATE wallets SET wallet_micro = wallet_micro + 10000000, funding_micro = funding_micro - 10000000
			WHERE workspace_id = @workspace`,
		[]string{"reference_twice: opening: kept once, found 2 times"}},
	{"a top-up becomes a release", `UPDATE transactions SET kind = 'release' WHERE workspace_id = @workspace AND kind = 'top_up'`,
		[]string{"misshapen_transaction: <id>: kept release, found wallet 10000000 held 0 revenue 0 funding -10000000"}},
	{"an unknown kind", `UPDATE transactions SET kind = 'gift' WHERE workspace_id = @workspace AND kind = 'top_up'`,
		[]string{"misshapen_transaction: <id>: kept gift"}},
	{"a top-up loses its reference", `UPDATE transactions SET reference = NULL WHERE workspace_id = @workspace AND kind = 'top_up'`,
		[]string{"misshapen_transaction: <id>: kept top_up"}},
	{"an open hold disappears", `DELETE FROM holds WHERE request_id = @open`,
		[]string{"held_is_not_holds: held: kept 0.5, found 0", "transaction_without_hold: <open>: kept no hold, found 1 transactions"}},
	{"a settled hold disappears", `DELETE FROM holds WHERE request_id = @captured`, []string{"transaction_without_hold: <captured>: kept no hold, found 2 transactions"}},
	{"a hold is moved to another workspace",
		`UPDATE holds SET workspace_id = gen_random_uuid() WHERE request_id = @released`,
		[]string{"transaction_without_hold: <released>"}},
	{"a hold has no transaction",
		`INSERT INTO holds (request_id, workspace_id, amount_micro, currency, per_minute_micro,
			increment_seconds, max_call_seconds, state)
		VALUES (@other, @workspace, 7, 'USD', 1, 1, 1, 'held')`,
		[]string{"held_is_not_holds: held: kept 0.5, found 0.500007", "hold_without_transaction: <other>: kept 0.000007, found nothing"}},
	{"the ledger loses a hold transaction", `DELETE FROM transactions WHERE request_id = @open`,
		[]string{"wrong_balance: wallet: kept 9.45, found 9.95", "wrong_balance: held: kept 0.5, found 0", "hold_without_transaction: <open>: kept 0.5, found nothing"}},
	{"the ledger has a hold transaction twice", again + `request_id = @open`,
		[]string{"wrong_balance: wallet", "wrong_balance: held", "held_twice: <open>: kept once, found 2 times"}},
	{"an open hold is lowered", `UPDATE holds SET amount_micro = amount_micro - 1 WHERE request_id = @open`,
		[]string{"held_is_not_holds: held: kept 0.5, found 0.499999", "wrong_hold: <open>: kept 0.499999, found 0.5"}},
	{"a released hold is lowered", `UPDATE holds SET amount_micro = amount_micro - 1 WHERE request_id = @released`,
		[]string{"wrong_hold: <released>", "wrong_release: <released>: kept 0.499999, found 0.5"}},
	{"the ledger loses a capture", `DELETE FROM transactions WHERE request_id = @captured AND kind = 'capture'`,
		[]string{"wrong_balance: wallet", "wrong_balance: held", "wrong_balance: revenue", "settled_without_transaction: <captured>: kept captured, found nothing"}},
	{"a captured hold is opened again", `UPDATE holds SET state = 'held', captured_micro = NULL, settled_at = NULL WHERE request_id = @captured`,
		[]string{"held_is_not_holds: held: kept 0.5, found 1", "open_but_settled: <captured>: kept held, found capture"}},
	{"an open hold is marked as released",
		`UPDATE holds SET state = 'released', settled_at = now() WHERE request_id = @open`,
		[]string{"held_is_not_holds: held: kept 0.5, found 0", "settled_without_transaction: <open>: kept released, found nothing"}},
	{"the ledger has a capture twice", again + `request_id = @captured AND kind = 'capture'`,
		[]string{"wrong_balance: wallet", "wrong_balance: held", "wrong_balance: revenue", "settled_twice: <captured>: kept once, found 2 times"}},
	{"a captured hold is marked as released",
		`UPDATE holds SET state = 'released', captured_micro = NULL WHERE request_id = @captured`,
		[]string{"wrong_settlement: <captured>: kept released, found capture", "wrong_charge: <captured>: kept 0, found 0.05"}},
	{"a charge is lowered", `UPDATE holds SET captured_micro = captured_micro - 1 WHERE request_id = @captured`,
		[]string{"wrong_charge: <captured>: kept 0.049999, found 0.05"}},
	{"a charge is above its hold, and ledger and wallet agree",
		`UPDATE holds SET captured_micro = 500001 WHERE request_id = @captured;
		UPDATE transactions SET wallet_micro = -1, revenue_micro = 500001 WHERE request_id = @captured AND kind = 'capture';
		UPDATE wallets SET wallet_micro = wallet_micro - 450001, revenue_micro = revenue_micro + 450001 WHERE workspace_id = @workspace`,
		[]string{"misshapen_transaction: <id>: kept capture", "charge_above_hold: <captured>: kept 0.500001, found 0.5"}},
	{"a hold is in another currency", `UPDATE holds SET currency = 'EUR' WHERE request_id = @open`, []string{"wrong_currency: <open>: kept EUR, found USD"}},
}

func TestReconcile_ReportsEveryInconsistency(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st, super := store.New(pool), pgtest.Super(t, pool, wallettest.Schema)
	dropConstraints(t, super)
	var all, published []string
	for _, forgery := range forgeries {
		b := createBooks(t, pool, st)
		args := pgx.NamedArgs{"workspace": b.workspace, "open": b.open, "captured": b.captured, "released": b.released, "other": wallettest.ID()}
		for _, statement := range strings.Split(forgery.sql, ";") {
			if did, err := super.Exec(t.Context(), statement, args); err != nil {
				t.Fatalf("%s: Exec: %v", forgery.name, err)
			} else if did.RowsAffected() == 0 {
				t.Fatalf("%s: did.RowsAffected() = 0, want more; statement = %s", forgery.name, statement)
			}
		}
		var out bytes.Buffer
		err := reconcile.Walk{Store: st, Out: &out, Progress: &out}.Run(t.Context(), b.workspace)
		if (err == nil) != (len(forgery.want) == 0) {
			t.Errorf("%s: Run = %v", forgery.name, err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		all = append(all, lines[:len(lines)-1]...)
		if want := fmt.Sprintf("1 workspaces compared, %d differences", len(forgery.want)); lines[len(lines)-1] != want {
			t.Errorf("%s: the last line is %q, want %q", forgery.name, lines[len(lines)-1], want)
		}
		checkDifferences(t, forgery.name, b, args, lines[:len(lines)-1], forgery.want)
		checkScripted(t, st, b.workspace, lines[:len(lines)-1])
		published = append(published, forgery.want...)
	}
	for _, kind := range ledger.DifferenceKinds() {
		if !slices.ContainsFunc(published, func(line string) bool { return strings.HasPrefix(line, string(kind)+": ") }) {
			t.Errorf("no forgery shows %s", kind)
		}
	}
	var out bytes.Buffer
	err := reconcile.Walk{Store: st, Out: &out, Progress: &out}.Run(t.Context(), uuid.Nil)
	for _, line := range all {
		if !strings.Contains(out.String(), line+"\n") {
			t.Errorf("the walk over all workspaces lacks %q", line)
		}
	}
	// Run must also compare the workspace to which a hold was moved, although this workspace has no
	// other rows.
	if !strings.Contains(out.String(), "missing_wallet") {
		t.Errorf("Run over all: %s does not contain %q", out.String(), "missing_wallet")
	}
	if err == nil {
		t.Error("Run over all = nil, want an error")
	}
	if !strings.Contains(out.String(), fmt.Sprint(len(forgeries)+1, " workspaces compared")) {
		t.Errorf("Run over all: %s does not contain %q", out.String(), fmt.Sprint(len(forgeries)+1, " workspaces compared"))
	}
}

// checkDifferences checks that the output contains the differences in want, in any order. An
// element of want is the beginning of a line without the workspace. The text <id> in want matches
// any id.
func checkDifferences(t *testing.T, name string, b books, args pgx.NamedArgs, lines, want []string) {
	t.Helper()
	if len(lines) != len(want) {
		t.Errorf("%s: output\n%s\nwant\n%s", name, strings.Join(lines, "\n"), strings.Join(want, "\n"))
		return
	}
	for _, fragment := range want {
		for _, id := range []string{"open", "captured", "released", "other"} {
			fragment = strings.ReplaceAll(fragment, "<"+id+">", fmt.Sprint(args[id]))
		}
		kind, rest, anyID := strings.Cut(fragment, "<id>")
		prefix := "workspace " + b.workspace.String() + ": " + kind
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, prefix) && (!anyID || strings.Contains(line, rest))
		}) {
			t.Errorf("%s: output\n%s\nlacks %s", name, strings.Join(lines, "\n"), fragment)
		}
	}
}

// lineChannel is a writer that sends each line to a channel. If no goroutine waits for a line, it
// drops the line.
type lineChannel chan string

func (h lineChannel) Write(line []byte) (int, error) {
	select {
	case h <- string(line):
	default:
	}
	return len(line), nil
}

// The test locks a table, so that the comparison of a workspace waits until a progress line was
// printed.
func TestReconcile_PrintsProgress(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st, super := store.New(pool), pgtest.Super(t, pool, wallettest.Schema)
	for range 2 {
		createBooks(t, pool, st)
	}
	b := createBooks(t, pool, st)
	wallettest.Workspace(t, st, 0)
	locking, err := super.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locking.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := locking.Exec(t.Context(), `LOCK TABLE holds IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	progress, ended := make(lineChannel), make(chan error, 1)
	go func() {
		ended <- reconcile.Walk{Store: st, Out: &out, Progress: progress, Interval: time.Millisecond}.Run(t.Context(),
			b.workspace)
	}()
	if line, want := <-progress, fmt.Sprintf("so far: 0 workspaces compared, 0 differences; comparing workspace %s\n", b.workspace); line != want {
		t.Errorf("line = %q, want %q", line, want)
	}
	if err := locking.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: error = %v, want nil", err)
	} else if out.String() != "1 workspaces compared, 0 differences\n" {
		t.Errorf("Run: out = %q, want \"1 workspaces compared, 0 differences\\n\"", out.String())
	}
	out.Reset()
	err = reconcile.Walk{Store: st, Out: &out, Progress: progress}.Run(t.Context(), uuid.Nil)
	if err != nil {
		t.Errorf("Run over all: %v", err)
	} else if out.String() != "4 workspaces compared, 0 differences\n" {
		t.Errorf("Run over all: out = %q, want \"4 workspaces compared, 0 differences\\n\"", out.String())
	}
}

func TestReconcile_UnknownWorkspaceAndInterruptionAreErrors(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	b := createBooks(t, pool, st)
	var out bytes.Buffer
	walk := reconcile.Walk{Store: st, Out: &out, Progress: &out}
	if err := walk.Run(t.Context(), wallettest.ID()); !errors.Is(err, store.ErrNoWallet) {
		t.Errorf("Run of an unknown workspace = %v, want ErrNoWallet", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for _, only := range []uuid.UUID{uuid.Nil, b.workspace} {
		if err := walk.Run(ctx, only); err == nil {
			t.Error("an interrupted Run: Run = nil, want an error")
		} else if errors.Is(err, context.Canceled) {
			t.Errorf("an interrupted Run: Run = %v, want another error", err)
		}
	}
}

func checkScripted(t *testing.T, st *store.Store, workspace uuid.UUID, lines []string) {
	t.Helper()
	var out bytes.Buffer
	_ = reconcile.Walk{Store: st, Out: &out, Progress: io.Discard}.Run(service.ForScript(t.Context()), workspace)
	var published struct {
		Workspaces      int
		Differences     []ledger.Difference
		DifferenceCount int  `json:"difference_count"`
		BrokenOff       bool `json:"broken_off"`
	}
	err := json.Unmarshal(out.Bytes(), &published)
	if err != nil {
		t.Fatalf("error = %v", err)
	}
	if published.Workspaces != 1 {
		t.Fatalf("workspaces = %v, want 1", published.Workspaces)
	}
	if published.BrokenOff {
		t.Fatalf("report.BrokenOff = true, want false")
	}
	if published.DifferenceCount != len(lines) {
		t.Fatalf("difference_count = %v, want %v", published.DifferenceCount, len(lines))
	}
	if got := len(published.Differences); got != len(lines) {
		t.Fatalf("length of report.Differences = %v, want %v", got, len(lines))
	}
	if published.Differences == nil {
		t.Fatalf("JSON output = %s, error %v, want %d differences", out.String(), err, len(lines))
	}
	for i, line := range lines {
		if published.Differences[i].String() != line {
			t.Errorf("difference in JSON = %+v, want %s", published.Differences[i], line)
		}
	}
}
