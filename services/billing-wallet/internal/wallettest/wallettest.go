// Package wallettest sets up wallets for the tests of billing-wallet.
package wallettest

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/ledger"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// Schema is the schema under test.
const Schema = "billing_wallet"

// Pool returns a connection pool of a new database. The pool uses the database role of the service
// at run time.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pgtest.New(t, Schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: Schema, FS: store.Migrations})
}

// ID returns a new UUIDv7.
func ID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// Workspace creates a wallet in USD with the given credit.
func Workspace(t testing.TB, st *store.Store, credit money.Micro) uuid.UUID {
	t.Helper()
	id := ID()
	if err := st.ApplyCurrency(t.Context(), id, "USD"); err != nil {
		t.Fatal(err)
	}
	if credit > 0 {
		if _, _, err := st.Pay(t.Context(), ledger.Paid(ID(), id, ledger.TopUp, credit, "opening", "test")); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

// Order returns an order for a hold of half a credit at the default rate.
func Order(workspaceID uuid.UUID) holds.Order {
	return holds.Order{RequestID: ID(), WorkspaceID: workspaceID, To: "+15550100123", MaxCallSeconds: 600}
}

// Balances checks the spendable and the held credit. It also checks that a reconciliation finds no
// differences.
func Balances(t testing.TB, st *store.Store, workspaceID uuid.UUID, spendable, held money.Micro) {
	t.Helper()
	books, err := st.Books(t.Context(), workspaceID)
	if err != nil {
		t.Fatal(err)
	}
	if !books.Agree() {
		t.Errorf("the books do not agree: %+v", books)
	}
	if books.Kept.Wallet != spendable || books.Kept.Held != held {
		t.Errorf("spendable %s, held %s, want %s and %s", books.Kept.Wallet, books.Kept.Held, spendable, held)
	}
}
