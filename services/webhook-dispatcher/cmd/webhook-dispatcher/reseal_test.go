package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

const schema = "webhook_dispatcher"

type fixture struct {
	t         *testing.T
	pool      *pgxpool.Pool
	workspace uuid.UUID
	secrets   map[uuid.UUID]string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: store.Migrations})
	return &fixture{t: t, pool: pool, workspace: uuid.Must(uuid.NewV7()), secrets: map[uuid.UUID]string{}}
}

// box returns a seal.Box with one key for each id. The id "new/2" is a different key that also has
// the name "new".
func (h *fixture) box(ids ...string) *seal.Box {
	h.t.Helper()
	var keys []string
	for _, id := range ids {
		name, _, _ := strings.Cut(id, "/")
		var key [32]byte
		copy(key[:], id)
		keys = append(keys, name+"="+base64.StdEncoding.EncodeToString(key[:]))
	}
	box, err := seal.New(seal.Config{Keys: keys})
	if err != nil {
		h.t.Fatal(err)
	}
	return box
}

func (h *fixture) store(ids ...string) *store.Store { return store.New(h.pool, h.box(ids...)) }

func (h *fixture) subscribe(n int, key string) (made []uuid.UUID) {
	h.t.Helper()
	st, paused := h.store(key), subscriptions.Paused
	for range n {
		id, secret := uuid.Must(uuid.NewV7()), h.secret()
		sub := subscriptions.Subscription{
			ID: id, WorkspaceID: h.workspace, Name: "n", URL: "https://127.0.0.1:1/", Events: []openapi.EventType{openapi.EventTypeCallCompleted},
		}
		if err := st.Create(h.t.Context(), sub, secret); err != nil {
			h.t.Fatal(err)
		}
		if _, err := st.Change(h.t.Context(), h.workspace, id, store.Change{Status: &paused}); err != nil {
			h.t.Fatal(err)
		}
		h.secrets[id], made = secret, append(made, id)
	}
	return made
}

func (h *fixture) secret() string {
	h.t.Helper()
	secret, err := subscriptions.NewSecret()
	if err != nil {
		h.t.Fatal(err)
	}
	return secret
}

// countOpened returns the number of secrets that the keys open. It fails the test if an opened
// secret has a wrong value.
func (h *fixture) countOpened(ids ...string) (n int) {
	h.t.Helper()
	box := h.box(ids...)
	rows, err := h.pool.Query(h.t.Context(), "SELECT id, secret_sealed FROM subscriptions")
	if err != nil {
		h.t.Fatal(err)
	}
	var id uuid.UUID
	var sealed []byte
	if _, err := pgx.ForEachRow(rows, []any{&id, &sealed}, func() error {
		plain, err := box.Open(sealed, id.String())
		if err == nil {
			n++
		}
		if err == nil && string(plain) != h.secrets[id] {
			h.t.Errorf("secret of subscription %s = %q, want %q", id, plain, h.secrets[id])
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return n
}

func (h *fixture) reseal(ids ...string) (output string, err error) {
	h.t.Helper()
	var out bytes.Buffer
	command := resealCommand{store: h.store(ids...), out: &out, progress: &out, batchSize: 7, progressInterval: 20}
	err = command.run(h.t.Context())
	return out.String(), err
}

func (h *fixture) resealForScript(ctx context.Context, ids ...string) (output, progress string, err error) {
	h.t.Helper()
	var out, beside bytes.Buffer
	command := resealCommand{store: h.store(ids...), out: &out, progress: &beside, batchSize: 7, progressInterval: 20}
	err = command.run(service.ForScript(ctx))
	return out.String(), beside.String(), err
}

func (h *fixture) requireReseal(want string, ids ...string) {
	h.t.Helper()
	output, err := h.reseal(ids...)
	if err != nil {
		h.t.Errorf("reseal: %v", err)
	}
	if !strings.HasSuffix(output, want+"\n") {
		h.t.Errorf("reseal prints %q, want %q", output, want)
	}
}

func TestReseal_EncryptsEverySecretWithTheFirstKey(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	made := h.subscribe(50, "old")
	// The row of a deleted subscription stays until its history is deleted, so its secret must be
	// sealed again too.
	if err := h.store("old").Delete(t.Context(), h.workspace, made[3]); err != nil {
		t.Fatal(err)
	}
	h.subscribe(3, "new")
	if n := h.countOpened("new"); n != 3 {
		t.Fatalf("secrets that the new key opens before the run = %d, want 3", n)
	}
	output, err := h.reseal("new", "old")
	if err != nil {
		t.Errorf("reseal: %v", err)
	}
	if want := "50 secrets resealed, 3 already current, 0 could not be opened\n"; !strings.HasSuffix(output, want) {
		t.Errorf("reseal prints %q, want %q", output, want)
	}
	if n := strings.Count(output, "progress: "); n != 2 {
		t.Errorf("progress lines = %d, want 2, after 20 and 40 of 53 secrets\n%s", n, output)
	}
	if n := h.countOpened("new"); n != 53 {
		t.Errorf("secrets that the new key opens = %d, want 53", n)
	}
	h.requireReseal("0 secrets resealed, 53 already current, 0 could not be opened", "new", "old")
}

func TestReseal_SucceedsWithoutSubscriptions(t *testing.T) {
	t.Parallel()
	newFixture(t).requireReseal("0 secrets resealed, 0 already current, 0 could not be opened", "new", "old")
}

func TestReseal_ReportsMissingKeysAndEncryptsTheOtherSecrets(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.subscribe(20, "lost")
	h.subscribe(5, "old")
	h.subscribe(2, "new/2") // these secrets are sealed with a different key that also has the name "new"
	output, err := h.reseal("new", "old")
	if want := "5 secrets resealed, 0 already current, 22 could not be opened\n"; !strings.HasSuffix(output, want) {
		t.Errorf("reseal prints %q, want %q", output, want)
	}
	for _, want := range []string{`20 sealed with key "lost", which is not in SEALING_KEYS`, `2 sealed with key "new", which does not open them`} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("reseal = %v, want an error with %q", err, want)
		}
	}
	output, progress, err := h.resealForScript(t.Context(), "new", "old")
	want := `{"broken_off":false,"current":5,"resealed":0,"unopened":[{"key":"lost","missing":true,"secrets":20},{"key":"new","missing":false,"secrets":2}]}` + "\n"
	if err == nil {
		t.Error("reseal for a script = nil, want an error for the secrets that could not be opened")
	}
	if output != want {
		t.Errorf("reseal for a script prints %q, want %q", output, want)
	}
	if n := strings.Count(progress, "progress: "); n != 1 {
		t.Errorf("progress lines of reseal for a script = %d, want 1: %q", n, progress)
	}
	if n := h.countOpened("new"); n != 5 {
		t.Errorf("secrets that the new key opens = %d, want 5", n)
	}
	if n := h.countOpened("lost"); n != 20 {
		t.Errorf("secrets that the missing key opens = %d, want 20", n)
	}
}

type cancelingWriter struct {
	lines  int
	cancel func()
	text   strings.Builder
}

func (w *cancelingWriter) Write(text []byte) (int, error) {
	if w.lines--; w.lines == 0 {
		w.cancel()
	}
	return w.text.Write(text)
}

func TestReseal_InterruptedRunCanBeContinued(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.subscribe(60, "old")
	ctx, cancel := context.WithCancel(t.Context())
	out := &cancelingWriter{lines: 2, cancel: cancel}
	err := resealCommand{store: h.store("new", "old"), out: out, progress: out, batchSize: 7, progressInterval: 7}.run(ctx)
	if err == nil {
		t.Fatal("interrupted Run = nil, want an error")
	}
	// if the error is context.Canceled, the program exits with status 0
	if errors.Is(err, context.Canceled) {
		t.Errorf("interrupted Run = %v, want an error other than context.Canceled", err)
	}
	if output := out.text.String(); !strings.Contains(output, "run the command again") {
		t.Errorf("interrupted Run prints %q, want it to contain \"run the command again\"", output)
	}
	if n := h.countOpened("new"); n != 14 && n != 21 {
		t.Errorf("secrets that the new key opens after the interruption = %d, want 14 or 21", n)
	}
	if n := h.countOpened("old", "new"); n != 60 {
		t.Errorf("secrets that both keys open after the interruption = %d, want 60", n)
	}
	output, _, err := h.resealForScript(ctx, "new", "old")
	if err == nil {
		t.Error("interrupted reseal for a script = nil, want an error")
	}
	if !strings.Contains(output, `"broken_off":true`) {
		t.Errorf("interrupted reseal for a script prints %q, want broken_off", output)
	}
	if _, err := h.reseal("new", "old"); err != nil {
		t.Errorf("second run: %v", err)
	}
	if n := h.countOpened("new"); n != 60 {
		t.Errorf("secrets that the new key opens after the second run = %d, want 60", n)
	}
}

// The reseal command reads a secret and waits for a locked row. Before it can write, a replica
// replaces this secret with a new one. The command must not overwrite the new secret.
func TestReseal_DoesNotOverwriteASecretThatChangedDuringTheRun(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, key string }{
		{"by a replica with the new order of keys", "new"},
		{"by a replica with the old order of keys", "old"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t)
			made := h.subscribe(5, "old")
			rotated := h.secret()
			sealed, err := h.box(row.key).Seal([]byte(rotated), made[2].String())
			if err != nil {
				t.Fatal(err)
			}
			tx, err := h.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			if _, err := tx.Exec(t.Context(), "UPDATE subscriptions SET secret_sealed = $1 WHERE id = $2", sealed, made[2]); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				done <- resealCommand{store: h.store("new", "old"), out: io.Discard, progress: io.Discard}.run(t.Context())
			}()
			h.awaitBlocked()
			h.secrets[made[2]] = rotated
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatalf("Run = %v", err)
			}
			if n := h.countOpened("new"); n != 5 {
				t.Errorf("secrets that the new key opens = %d, want 5", n)
			}
		})
	}
}

func (h *fixture) awaitBlocked() {
	h.t.Helper()
	const waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	testkit.Until(h.t, "a statement waits for the row", func() bool {
		var n int
		if err := h.pool.QueryRow(h.t.Context(), waiting).Scan(&n); err != nil {
			h.t.Fatal(err)
		}
		return n > 0
	})
}

// Two replicas replace secrets continuously while the reseal command runs 20 times. One replica
// seals with the old key, and the other replica seals with the new key. No new secret may be lost.
func TestReseal_KeepsSecretsThatReplicasReplaceConcurrently(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	made := h.subscribe(30, "old")
	stop := make(chan struct{})
	var rotating sync.WaitGroup
	newest := []map[uuid.UUID]string{{}, {}}
	for half, st := range []*store.Store{h.store("old", "new"), h.store("new", "old")} {
		mine := made[half*15 : half*15+15]
		rotating.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id, secret := mine[n%len(mine)], h.secret()
				if err := st.Rotate(t.Context(), h.workspace, id, secret); err != nil {
					t.Errorf("Rotate: %v", err)
					return
				}
				newest[half][id] = secret
			}
		})
	}
	for range 20 {
		if output, err := h.reseal("new", "old"); err != nil {
			t.Errorf("reseal = %q, %v", output, err)
		}
	}
	close(stop)
	rotating.Wait()
	for _, half := range newest {
		maps.Copy(h.secrets, half)
	}
	if n := h.countOpened("new", "old"); n != 30 {
		t.Errorf("secrets that both keys open = %d, want 30", n)
	}
	h.requireReseal("0 could not be opened", "new", "old")
	if n := h.countOpened("new"); n != 30 {
		t.Errorf("secrets that the new key opens after the last run = %d, want 30", n)
	}
}
