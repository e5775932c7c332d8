package keyrotation_test

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
	"ringfence.dev/services/webhook-dispatcher/internal/keyrotation"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

const schema = "webhook_dispatcher"

// house is one database, reached with whatever keys.
type house struct {
	t         *testing.T
	pool      *pgxpool.Pool
	workspace uuid.UUID
	secrets   map[uuid.UUID]string
}

func newHouse(t *testing.T) *house {
	t.Helper()
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: store.Migrations})
	return &house{t: t, pool: pool, workspace: uuid.Must(uuid.NewV7()), secrets: map[uuid.UUID]string{}}
}

// box has the keys of the given ids; each id has one key unless it says otherwise ("old/2").
func (h *house) box(ids ...string) *seal.Box {
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

func (h *house) store(ids ...string) *store.Store { return store.New(h.pool, h.box(ids...)) }

// subscribe makes n paused subscriptions whose secrets lie under the key.
func (h *house) subscribe(n int, key string) (made []uuid.UUID) {
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

func (h *house) secret() string {
	h.t.Helper()
	secret, err := subscriptions.NewSecret()
	if err != nil {
		h.t.Fatal(err)
	}
	return secret
}

// opens counts the secrets that the keys open to what they must be; a wrong one is a fault.
func (h *house) opens(ids ...string) (n int) {
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
			h.t.Errorf("subscription %s has another secret than it was given", id)
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return n
}

// reseal is one run; it returns what was told.
func (h *house) reseal(ids ...string) (told string, err error) {
	h.t.Helper()
	var out bytes.Buffer
	err = keyrotation.Rotation{Store: h.store(ids...), Out: &out, Progress: &out, BatchSize: 7, ProgressInterval: 20}.Run(h.t.Context())
	return out.String(), err
}

// scripted is what a script is told by one run, at its end and before it.
func (h *house) scripted(ctx context.Context, ids ...string) (told, progress string, err error) {
	h.t.Helper()
	var out, beside bytes.Buffer
	err = keyrotation.Rotation{Store: h.store(ids...), Out: &out, Progress: &beside, BatchSize: 7, ProgressInterval: 20}.Run(service.ForScript(ctx))
	return out.String(), beside.String(), err
}

func (h *house) resealsTo(want string, ids ...string) {
	h.t.Helper()
	told, err := h.reseal(ids...)
	if err != nil {
		h.t.Errorf("reseal: %v", err)
	}
	if !strings.HasSuffix(told, want+"\n") {
		h.t.Errorf("reseal prints %q, want %q", told, want)
	}
}

func TestRun_AfterItTheOldKeyIsNotNeeded(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	made := h.subscribe(50, "old")
	if err := h.store("old").Delete(t.Context(), h.workspace, made[3]); err != nil { // its row stays until its history is erased
		t.Fatal(err)
	}
	h.subscribe(3, "new")
	if n := h.opens("new"); n != 3 {
		t.Fatalf("%d secrets open under the new key before, want 3", n)
	}
	told, err := h.reseal("new", "old")
	if err != nil {
		t.Errorf("reseal: %v", err)
	}
	if want := "50 secrets resealed, 3 already current, 0 could not be opened\n"; !strings.HasSuffix(told, want) {
		t.Errorf("reseal prints %q, want %q", told, want)
	}
	if n := strings.Count(told, "so far: "); n != 2 {
		t.Errorf("reseal told of its progress %d times, want 2: after 20 and 40 of 53\n%s", n, told)
	}
	if n := h.opens("new"); n != 53 {
		t.Errorf("%d of 53 secrets open without the old key", n)
	}
	h.resealsTo("0 secrets resealed, 53 already current, 0 could not be opened", "new", "old")
}

func TestRun_NothingThereIsNoFault(t *testing.T) {
	t.Parallel()
	newHouse(t).resealsTo("0 secrets resealed, 0 already current, 0 could not be opened", "new", "old")
}

func TestRun_NamesTheKeysThatAreMissingAndDoesTheOthers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.subscribe(20, "lost")
	h.subscribe(5, "old")
	h.subscribe(2, "new/2") // somebody gave the new key's id to another key before
	told, err := h.reseal("new", "old")
	if want := "5 secrets resealed, 0 already current, 22 could not be opened\n"; !strings.HasSuffix(told, want) {
		t.Errorf("reseal told %q, want %q", told, want)
	}
	for _, want := range []string{`20 under key "lost", which is not in SEALING_KEYS`, `2 under key "new", which does not fit`} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("reseal = %v, want an error with %q", err, want)
		}
	}
	told, progress, err := h.scripted(t.Context(), "new", "old")
	want := `{"broken_off":false,"current":5,"resealed":0,"unopened":[{"key":"lost","missing":true,"secrets":20},{"key":"new","missing":false,"secrets":2}]}` + "\n"
	if err == nil {
		t.Error("reseal for a script = nil, want an error for the secrets that could not be opened")
	}
	if told != want {
		t.Errorf("reseal for a script prints %q, want %q", told, want)
	}
	if n := strings.Count(progress, "so far: "); n != 1 {
		t.Errorf("reseal for a script reports its progress %d times, want once: %q", n, progress)
	}
	if n := h.opens("new"); n != 5 {
		t.Errorf("%d secrets open under the new key, want 5", n)
	}
	if n := h.opens("lost"); n != 20 {
		t.Errorf("%d secrets open under the key that was missing, want 20 as before", n)
	}
}

// writing ends a run after so many lines.
type writing struct {
	lines int
	end   func()
	told  strings.Builder
}

func (w *writing) Write(text []byte) (int, error) {
	if w.lines--; w.lines == 0 {
		w.end()
	}
	return w.told.Write(text)
}

func TestRun_InterruptedIsAFaultAndGoesOnNextTime(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.subscribe(60, "old")
	ctx, cancel := context.WithCancel(t.Context())
	out := &writing{lines: 2, end: cancel}
	err := keyrotation.Rotation{Store: h.store("new", "old"), Out: out, Progress: out, BatchSize: 7, ProgressInterval: 7}.Run(ctx)
	if err == nil {
		t.Fatal("interrupted Run = nil, want an error")
	}
	if errors.Is(err, context.Canceled) { // the service's main function would end with status 0
		t.Errorf("interrupted Run = %v, want an error other than context.Canceled", err)
	}
	if told := out.told.String(); !strings.Contains(told, "run it again") {
		t.Errorf("interrupted Run prints %q, want it to say that it must run again", told)
	}
	if n := h.opens("new"); n != 14 && n != 21 {
		t.Errorf("%d secrets lie under the new key, want two or three batches of 7", n)
	}
	if n := h.opens("old", "new"); n != 60 {
		t.Errorf("%d of 60 secrets open in the middle", n)
	}
	told, _, err := h.scripted(ctx, "new", "old")
	if err == nil {
		t.Error("interrupted reseal for a script = nil, want an error")
	}
	if !strings.Contains(told, `"broken_off":true`) {
		t.Errorf("interrupted reseal for a script prints %q, want broken_off", told)
	}
	if _, err := h.reseal("new", "old"); err != nil {
		t.Errorf("second run: %v", err)
	}
	if n := h.opens("new"); n != 60 {
		t.Errorf("secrets under the new key after the second run = %d, want 60", n)
	}
}

// TestRun_ARotationThatCommitsBetweenReadAndSwapWins holds the row while the batch has read it and waits to put the new text in place.
func TestRun_ARotationThatCommitsBetweenReadAndSwapWins(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, key string }{
		{"by a replica with the new order of keys", "new"},
		{"by a replica with the old order of keys", "old"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
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
				done <- keyrotation.Rotation{Store: h.store("new", "old"), Out: io.Discard, Progress: io.Discard}.Run(t.Context())
			}()
			h.awaitBlocked()
			h.secrets[made[2]] = rotated
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatalf("Run = %v", err)
			}
			if n := h.opens("new"); n != 5 {
				t.Errorf("%d of 5 secrets lie under the new key", n)
			}
		})
	}
}

// awaitBlocked waits until a statement of this database waits for a row.
func (h *house) awaitBlocked() {
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

// TestRun_BesideRotations rotates all the time, by replicas of both orders of keys, while the walk goes around again and again.
func TestRun_BesideRotations(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
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
		if told, err := h.reseal("new", "old"); err != nil {
			t.Errorf("reseal = %q, %v", told, err)
		}
	}
	close(stop)
	rotating.Wait()
	for _, half := range newest {
		maps.Copy(h.secrets, half)
	}
	if n := h.opens("new", "old"); n != 30 {
		t.Errorf("%d of 30 secrets open", n)
	}
	h.resealsTo("0 could not be opened", "new", "old")
	if n := h.opens("new"); n != 30 {
		t.Errorf("%d of 30 secrets open without the old key after a last walk", n)
	}
}
