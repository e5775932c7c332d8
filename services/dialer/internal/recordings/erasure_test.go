package recordings_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/retention"
	"ringfence.dev/services/dialer/internal/store"
)

func (r *fixture) erase(call uuid.UUID) uuid.UUID {
	r.t.Helper()
	var request uuid.UUID
	if err := r.pool.QueryRow(r.t.Context(), `SELECT call_request_id FROM calls WHERE call_id = $1`, call).Scan(&request); err != nil {
		r.t.Fatal(err)
	}
	erasure := uuid.New()
	for range 2 { // the second event must have no effect
		err := pg.InTx(r.t.Context(), r.pool, func(tx pgx.Tx) error {
			return r.store.EraseRequest(
				r.t.Context(),
				tx,
				request,
				store.Erasure{ID: erasure, WorkspaceID: r.workspace},
			)
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return erasure
}

func TestRecorder_ReportsAnErasureAfterTheObjectIsDeleted(t *testing.T) {
	r := newFixture(t)
	rec, stored, live := r.recorder(r.spool), r.call(), r.call()
	r.begin(rec, stored).Close()
	tape := r.begin(rec, live)
	r.hangUp(stored)
	r.mustRound(rec)
	r.mustRound(rec)
	if len(r.s3.Objects()) != 1 {
		t.Fatal("nothing was stored")
	}
	r.erase(stored)
	r.erase(live)
	done, next := r.steps()
	for _, id := range []uuid.UUID{stored, live} {
		if slices.Contains(done, id.String()) {
			t.Error("slices.Contains(done, id.String()) = true, want false")
		} else if !slices.Contains(next, "dialer "+id.String()) {
			t.Errorf("next = %v, want it to contain %v", next, "dialer "+id.String())
		}
	}
	if fresh := r.call(); true {
		r.erase(fresh)
		if _, err := rec.Begin(t.Context(), r.workspace, fresh); err == nil {
			t.Error("the call of an erased person is recorded")
		}
	}
	r.s3.Away(true)
	if r.round(rec) == nil {
		t.Error("Round = nil while the storage is unreachable, want an error")
	}
	if done, _ := r.steps(); slices.Contains(done, stored.String()) {
		t.Error("the step was reported as done before the object was deleted")
	}
	r.s3.Away(false)
	r.mustRound(rec)
	tape.Close()
	r.hangUp(live)
	r.mustRound(rec)
	r.mustRound(rec)
	done, _ = r.steps()
	for _, id := range []uuid.UUID{stored, live} {
		if got := r.state(id); got != "gone" {
			t.Errorf(`after the round: state of id = %q, want "gone"`, got)
		} else if !slices.Contains(done, id.String()) {
			t.Errorf("after the round: done = %v, want it to contain %v", done, id.String())
		}
	}
	if len(r.s3.Objects())+len(r.files()) != 0 {
		t.Errorf("objects = %d, files = %v, want none", len(r.s3.Objects()), r.files())
	}
}

func TestRecorder_ErasureDeletesTheRecordingOfACaller(t *testing.T) {
	r := newFixture(t)
	rec, id := r.recorder(r.spool), r.call()
	r.exec(
		`UPDATE calls SET direction = 'inbound', call_request_id = NULL, from_number = '+14155550177' WHERE call_id = $1`,
		id,
	)
	r.begin(rec, id).Close()
	r.hangUp(id)
	r.mustRound(rec)
	r.mustRound(rec)
	if r.state(id) != "stored" {
		t.Fatalf("it is %s", r.state(id))
	}
	e := store.Erasure{ID: uuid.New(), WorkspaceID: r.workspace}
	for range 2 {
		if err := pg.InTx(t.Context(), r.pool,
			func(tx pgx.Tx) error { return r.store.OrderErasure(t.Context(), tx, "+14155550177", e) }); err != nil {
			t.Fatal(err)
		}
		if err := retention.NewErasureJob(r.store).Work(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, next := r.steps(); !slices.Contains(next, "dialer "+id.String()) {
		t.Errorf("announced steps = %v, want a separate one for the recording", next)
	}
	r.mustRound(rec)
	switch done, _ := r.steps(); {
	case r.state(id) != "gone":
		t.Errorf(`state of id = %v, want "gone"`, r.state(id))
	case !slices.Contains(done, id.String()):
		t.Errorf("done = %v, want it to contain %v", done, id.String())
	case len(r.s3.Objects()) != 0:
		t.Errorf("stored objects = %v, want 0", len(r.s3.Objects()))
	}
	if keys := r.publishedKeys(id); keys[len(keys)-1] != "" {
		t.Errorf("published keys = %v", keys)
	}
}
