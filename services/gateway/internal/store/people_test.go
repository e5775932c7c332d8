package store_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/store"
)

func newStore(t *testing.T) (*store.Store, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.New(t, store.Schema, outbox.Migrations, pg.Migrations{Name: store.Schema, FS: store.Migrations})
	return store.New(pool, nil), pool
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// concurrently runs f ten times concurrently and returns the number of calls that succeeded. All
// other calls must return the error want.
func concurrently(t *testing.T, want error, f func(i int) error) int {
	t.Helper()
	var done atomic.Int32
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			switch err := f(i); {
			case err == nil:
				done.Add(1)
			case !errors.Is(err, want):
				t.Errorf("error = %v, want %v", err, want)
			}
		})
	}
	all.Wait()
	return int(done.Load())
}

func signIn() store.SignIn { return store.SignIn{Hash: people.HashSecret(people.NewSessionToken())} }

func TestSignInWithCode_ConcurrentUsesOfACodeCreateOneSession(t *testing.T) {
	t.Parallel()
	st, _ := newStore(t)
	ctx := t.Context()
	code := people.HashCode(people.NewCode())
	if err := st.AddLocalCode(ctx, code); err != nil {
		t.Fatal(err)
	}
	made := concurrently(t, pg.ErrNotFound, func(int) error {
		_, err := st.SignInWithCode(ctx, code, signIn())
		return err
	})
	if made != 1 {
		t.Errorf("sessions = %d, want 1", made)
	}
}

func TestReplaceToken_ConcurrentRequestsReplaceATokenOnce(t *testing.T) {
	t.Parallel()
	st, pool := newStore(t)
	ctx := t.Context()
	code := people.HashCode(people.NewCode())
	if err := st.AddLocalCode(ctx, code); err != nil {
		t.Fatal(err)
	}
	session, err := st.SignInWithCode(ctx, code, signIn())
	if err != nil {
		t.Fatal(err)
	}
	execute(t, pool, `UPDATE sessions SET replace = true`)
	replaced := concurrently(t, pg.ErrNotFound, func(int) error {
		_, err := st.ReplaceToken(ctx, session.ID, signIn().Hash)
		return err
	})
	if replaced != 1 {
		t.Errorf("replacements = %d, want 1", replaced)
	}
	listed, err := st.Sessions(ctx, session.PersonID)
	if err != nil {
		t.Fatal(err)
	}
	if len(listed) != 1 {
		t.Errorf("sessions with a current token = %d, want 1", len(listed))
	}
}

func TestAcceptInvitation_OnlyOneOfManyConcurrentPeopleAccepts(t *testing.T) {
	t.Parallel()
	st, _ := newStore(t)
	ctx := t.Context()
	role, token := people.Operator, people.NewInvitationToken()
	invitation := people.Invitation{ID: uuid.Must(uuid.NewV7()), Role: &role, InvitedBy: "test"}
	hash := people.HashSecret(token)
	if _, err := st.AddInvitation(ctx, invitation, hash, people.InvitationLifetime); err != nil {
		t.Fatal(err)
	}
	accepted := concurrently(t, store.ErrNoInvitation, func(i int) error {
		issuer, subject := "https://id.example.com", uuid.NewString()
		_, err := st.SignInWithProvider(ctx, store.ProviderSignIn{
			Person:     people.Person{ID: uuid.Must(uuid.NewV7()), Name: "Grace", Issuer: &issuer, Subject: &subject},
			Invitation: hash[:],
		}, signIn())
		return err
	})
	if accepted != 1 {
		t.Errorf("accepted = %d, want 1", accepted)
	}
}

func TestRemoveMember_ConcurrentRemovalsKeepOneOperator(t *testing.T) {
	t.Parallel()
	st, pool := newStore(t)
	ctx := t.Context()
	ids := make([]uuid.UUID, 10)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
		execute(t, pool, `INSERT INTO people (id, name) VALUES ($1, 'Grace')`, ids[i])
		execute(t, pool, `INSERT INTO memberships (person_id, role) VALUES ($1, 'operator')`, ids[i])
	}
	removed := concurrently(t, store.ErrLastOwner, func(i int) error { return st.RemoveMember(ctx, ids[i], nil) })
	if removed != 9 {
		t.Errorf("removed = %d, want 9", removed)
	}
}
