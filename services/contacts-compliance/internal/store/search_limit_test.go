package store

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
)

// A lock on the table blocks the search until the search's time limit ends.
func TestSearch_Gives503AfterItsTimeLimit(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "contacts_compliance", outbox.Migrations, inbox.Migrations,
		pg.Migrations{Name: "contacts_compliance", FS: Migrations})
	owner := pgtest.Owner(t, pool, "contacts_compliance")
	lock, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(t.Context()) }()
	if _, err := lock.Exec(t.Context(), "LOCK TABLE contacts IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	workspace, st := uuid.New(), New(pool, nil)
	args := pgx.NamedArgs{"workspace_id": workspace, "name": "ann", "below": page.Request{}.Below(), "rows": 26}
	args["dnds"], args["consents"] = contacts.StatePairs("", "")
	_, err = st.searchNames(t.Context(), workspace, args)
	var refused *apierr.Error
	if !errors.As(err, &refused) {
		t.Fatalf("search = %v, want an error for the client", err)
	}
	if refused.Status != http.StatusServiceUnavailable {
		t.Errorf("status = %d, want %d", refused.Status, http.StatusServiceUnavailable)
	}
	if refused.RetryAfter == 0 {
		t.Error("RetryAfter = 0, want a delay")
	}
}
