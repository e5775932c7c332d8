package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/store"
)

// signedIn returns a session of the operator of the local stack.
func signedIn(t *testing.T, st *store.Store) people.Session {
	t.Helper()
	code := people.HashCode(people.NewCode())
	if err := st.AddLocalCode(t.Context(), code); err != nil {
		t.Fatal(err)
	}
	session, err := st.SignInWithCode(t.Context(), code, signIn())
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func count(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRevokeSessions_EndsASessionThatIsBeingReplaced(t *testing.T) {
	t.Parallel()
	st, pool := newStore(t)
	ctx := t.Context()
	session := signedIn(t, st)
	execute(t, pool, `UPDATE sessions SET replace = true`)
	// The insert of the new session waits for a lock that the test holds.
	owner := pgtest.Owner(t, pool, store.Schema)
	for _, statement := range []string{
		`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
			$$BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END$$`,
		`CREATE TRIGGER wait BEFORE INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION wait()`,
	} {
		if _, err := owner.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	holder, err := owner.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(ctx, `SELECT pg_advisory_xact_lock(7)`); err != nil {
		t.Fatal(err)
	}
	const waiting = `SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE NOT granted AND datname = current_database()`
	ended := make(chan error, 2)
	go func() {
		_, err := st.ReplaceToken(ctx, session.ID, signIn().Hash)
		ended <- err
	}()
	testkit.Until(t, "the replacement waits", func() bool { return count(t, owner, waiting) == 1 })
	go func() { ended <- st.RevokeSessions(ctx, session.PersonID) }()
	testkit.Until(t, "the revocation waits", func() bool { return count(t, owner, waiting) == 2 })
	if err := holder.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM sessions`); n != 0 {
		t.Errorf("sessions after the revocation = %d, want 0", n)
	}
}

func TestRevokeSession_EndsTheReplacedTokenAndItsReplacement(t *testing.T) {
	t.Parallel()
	for _, ended := range []string{"replaced", "replacement", "previous at a sign-in"} {
		t.Run(ended, func(t *testing.T) {
			t.Parallel()
			st, pool := newStore(t)
			ctx := t.Context()
			session := signedIn(t, st)
			other := signedIn(t, st)
			execute(t, pool, `UPDATE sessions SET replace = true WHERE id = $1`, session.ID)
			hash := signIn().Hash
			next, err := st.ReplaceToken(ctx, session.ID, hash)
			if err != nil {
				t.Fatal(err)
			}
			left := other.ID
			switch ended {
			case "replaced":
				err = st.RevokeSession(ctx, session.PersonID, session.ID)
			case "replacement":
				err = st.RevokeSession(ctx, session.PersonID, next.ID)
			default:
				execute(t, pool, `DELETE FROM sessions WHERE id = $1`, other.ID)
				code := people.HashCode(people.NewCode())
				if err := st.AddLocalCode(ctx, code); err != nil {
					t.Fatal(err)
				}
				again := signIn()
				again.Previous = &hash
				var made people.Session
				made, err = st.SignInWithCode(ctx, code, again)
				left = made.ID
			}
			if err != nil {
				t.Fatal(err)
			}
			var id uuid.UUID
			if err := pool.QueryRow(ctx, `SELECT id FROM sessions`).Scan(&id); err != nil {
				t.Fatal(err)
			}
			if n := count(t, pool, `SELECT count(*) FROM sessions`); n != 1 || id != left {
				t.Errorf("sessions = %d with %s, want only %s", n, id, left)
			}
		})
	}
}

func TestAddAttempt_NumberOfOpenSignInsIsLimited(t *testing.T) {
	t.Parallel()
	st, pool := newStore(t)
	ctx := t.Context()
	execute(t, pool, `INSERT INTO sign_in_attempts (hash, kind, state, expires_at)
		SELECT sha256(n::text::bytea), 'oidc', '{}', now() + interval '1 hour' FROM generate_series(1, 99999) AS n`)
	add := func() error { return st.AddAttempt(ctx, signIn().Hash, "oidc", []byte("{}")) }
	if err := add(); err != nil {
		t.Fatalf("last place: %v", err)
	}
	if err := add(); !errors.Is(err, store.ErrTooManyAttempts) {
		t.Errorf("no place: error = %v, want %v", err, store.ErrTooManyAttempts)
	}
	execute(t, pool, `UPDATE sign_in_attempts SET expires_at = now() WHERE hash = sha256('7'::bytea)`)
	if err := add(); err != nil {
		t.Errorf("place of an expired sign-in: %v", err)
	}
}
