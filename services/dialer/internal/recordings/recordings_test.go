package recordings_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/recordings"
	"ringfence.dev/services/dialer/internal/store"
)

type fixture struct {
	t         *testing.T
	pool      *pgxpool.Pool
	store     *store.Store
	s3        *testkit.Server
	spool     string
	workspace uuid.UUID
	calls     int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	pool := pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	r := &fixture{
		t:         t,
		pool:      pool,
		store:     store.New(pool, uuid.New(), store.Timing{}),
		s3:        testkit.New(),
		spool:     t.TempDir(),
		workspace: uuid.New(),
	}
	t.Cleanup(r.s3.Close)
	return r
}

func (r *fixture) recorder(spool string) *recordings.Recorder {
	r.t.Helper()
	opened, err := recordings.OpenSpool(spool)
	if err != nil {
		r.t.Fatal(err)
	}
	bucket, err := recordings.NewBucket(r.s3.Storage())
	if err != nil {
		r.t.Fatal(err)
	}
	return recordings.New(
		opened,
		store.NewRecordings(r.pool, opened.Name()),
		r.store,
		bucket,
		30*24*time.Hour,
		func() {},
		prometheus.NewRegistry(),
	)
}

func (r *fixture) call() uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	r.calls++ // a number can have only one live call, so each call has another number
	r.exec(
		`INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, status,
			queued_at, max_call_seconds, deadline_at, traceparent, dialed_at, answered_at, version)
		VALUES ($1, $2, $3, 'outbound', '+15005550006', $4, $2, 'in_progress', now(), 60, now() + interval '1 hour', '',
			now(), now(), 3)`,
		id,
		uuid.Must(uuid.NewV7()),
		r.workspace,
		fmt.Sprintf("+1415555%04d", r.calls),
	)
	return id
}

func (r *fixture) hangUp(id uuid.UUID) {
	r.exec(`UPDATE calls SET status = 'completed', ended_at = now() WHERE call_id = $1`, id)
}

func (r *fixture) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *fixture) due() { r.t.Helper(); r.exec(`UPDATE recordings SET try_at = now()`) }

func (r *fixture) round(rec *recordings.Recorder) error { r.due(); return rec.Round(r.t.Context()) }

func (r *fixture) mustRound(rec *recordings.Recorder) {
	r.t.Helper()
	if err := r.round(rec); err != nil {
		r.t.Errorf("round: %v", err)
	}
}

func (r *fixture) begin(rec *recordings.Recorder, id uuid.UUID) *recordings.Tape {
	r.t.Helper()
	tape, err := rec.Begin(r.t.Context(), r.workspace, id)
	if err != nil {
		r.t.Fatal(err)
	}
	second(tape)
	return tape
}

func second(tape *recordings.Tape) {
	for range 50 {
		tape.Tick(bytes.Repeat([]byte{1}, 160), bytes.Repeat([]byte{2}, 160))
	}
}

func (r *fixture) state(id uuid.UUID) (state string) {
	r.t.Helper()
	if err := r.pool.QueryRow(r.t.Context(), `SELECT coalesce((SELECT state FROM recordings WHERE call_id = $1), 'gone')`,
		id).Scan(&state); err != nil {
		r.t.Fatal(err)
	}
	return state
}

func (r *fixture) publishedKeys(id uuid.UUID) (keys []string) {
	r.t.Helper()
	for _, payload := range r.payloads("dial-events.v1") {
		var ev eventv1.DialEvent
		if err := proto.Unmarshal(payload, &ev); err != nil {
			r.t.Fatal(err)
		}
		if ev.GetCall().GetCallId() == id.String() && ev.GetRecorded() != nil {
			keys = append(keys, ev.GetCall().GetRecordingKey())
		}
	}
	return keys
}

// steps returns the erasure steps that were reported as done, and the steps that were announced as
// next.
func (r *fixture) steps() (done, next []string) {
	r.t.Helper()
	for _, payload := range r.payloads("erasure-reports.v1") {
		var ev eventv1.ErasureReport
		if err := proto.Unmarshal(payload, &ev); err != nil {
			r.t.Fatal(err)
		}
		done = append(done, ev.GetStepDone().GetRef())
		for _, step := range ev.GetStepDone().GetNext() {
			next = append(next, step.GetService()+" "+step.GetRef())
		}
	}
	return done, next
}

func (r *fixture) payloads(topic string) [][]byte {
	r.t.Helper()
	rows, err := r.pool.Query(r.t.Context(), `SELECT payload FROM outbox WHERE topic = $1 ORDER BY id`, topic)
	if err != nil {
		r.t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

func (r *fixture) files() []string {
	found, _ := filepath.Glob(filepath.Join(r.spool, "*.wav"))
	return found
}

func (r *fixture) object(seconds int) {
	r.t.Helper()
	objects := r.s3.Objects()
	if len(objects) != 1 {
		r.t.Fatalf("%d objects, want one", len(objects))
	}
	for _, object := range objects {
		body := object.Body
		if len(body) != recordings.HeaderBytes+seconds*recordings.BytesPerSecond {
			r.t.Fatalf(
				"length of body = %d, want %d",
				len(body),
				recordings.HeaderBytes+seconds*recordings.BytesPerSecond,
			)
		}
		if !bytes.Equal(body[:recordings.HeaderBytes], recordings.Header(int64(seconds*recordings.BytesPerSecond))) {
			r.t.Fatalf("body[:wav.HeaderBytes] = %q, want %q",
				body[:recordings.HeaderBytes], recordings.Header(int64(seconds*recordings.BytesPerSecond)))
		}
		if sound := body[recordings.HeaderBytes:]; !bytes.Equal(sound, bytes.Repeat([]byte{1, 2}, len(sound)/2)) {
			r.t.Error("the channels are not person left and agent right")
		}
	}
}

func TestRecorder_UploadsARecordingOnce(t *testing.T) {
	r := newFixture(t)
	rec, id := r.recorder(r.spool), r.call()
	tape := r.begin(rec, id)
	if _, err := rec.Begin(t.Context(), r.workspace, id); err == nil {
		t.Error("Begin of a second recording of a call succeeded")
	}
	r.mustRound(rec)
	if r.state(id) != "recording" {
		t.Errorf("state during the call = %s", r.state(id))
	}
	tape.Close()
	second(tape) // this audio arrives after the end of the recording
	r.mustRound(rec)
	if got := r.state(id); got != "recorded" {
		t.Errorf(`before the end of the call is published: state of id = %q, want "recorded"`, got)
	} else if got := len(r.publishedKeys(id)); got != 0 {
		t.Errorf("before the end of the call is published: published events = %d, want 0", got)
	}
	r.hangUp(id)
	r.s3.Away(true)
	switch {
	case r.round(rec) == nil:
		t.Error("r.round(rec) is nil")
	case r.state(id) != "recorded":
		t.Errorf(`state of id = %v, want "recorded"`, r.state(id))
	case len(r.publishedKeys(id)) != 0:
		t.Errorf("published recording keys = %d, want 0", len(r.publishedKeys(id)))
	}
	r.s3.Away(false)
	r.mustRound(rec)
	r.mustRound(rec)
	if got := r.state(id); got != "stored" {
		t.Errorf(`after the round: state of id = %q, want "stored"`, got)
	} else if got := len(r.files()); got != 0 {
		t.Errorf("after the round: files in the spool = %d, want 0", got)
	}
	r.object(1)
	want := r.workspace.String() + time.Now().UTC().Format("/2006/01/02/") + id.String() + ".wav"
	if got := r.publishedKeys(id); !slices.Equal(got, []string{want}) {
		t.Errorf("published keys = %v, want %s once", got, want)
	}
	// The recording expires after 30 days, so it must not be deleted a day before.
	if err := rec.Tidy(t.Context(), time.Now().Add(29*24*time.Hour)); err != nil {
		t.Errorf("a day before: Tidy: %v", err)
	} else if got := r.state(id); got != "stored" {
		t.Errorf(`a day before: state of id = %q, want "stored"`, got)
	}
	if err := rec.Tidy(t.Context(), time.Now().Add(31*24*time.Hour)); err != nil {
		t.Errorf("a day after: Tidy: %v", err)
	} else if got := r.state(id); got != "leaving" {
		t.Errorf(`a day after: state of id = %q, want "leaving"`, got)
	}
	r.s3.Away(true)
	if r.round(rec) == nil {
		t.Error("after a failed delete: r.round(rec) = nil, want a value")
	} else if got := r.state(id); got != "leaving" {
		t.Errorf(`after a failed delete: state of id = %q, want "leaving"`, got)
	}
	r.s3.Away(false)
	r.mustRound(rec)
	switch got := r.publishedKeys(id); {
	case r.state(id) != "gone":
		t.Errorf(`state of id = %v, want "gone"`, r.state(id))
	case len(r.s3.Objects()) != 0:
		t.Errorf("stored objects = %v, want 0", len(r.s3.Objects()))
	case !slices.Equal(got, []string{want, ""}):
		t.Errorf("got = %v, want %v", got, []string{want, ""})
	}
}

func TestRecorder_DeletesRecordingsAfterThePeriodOfTheWorkspace(t *testing.T) {
	r := newFixture(t)
	r.exec(
		`INSERT INTO workspaces (workspace_id, version, status, api_enabled, max_live_calls, calls_per_second, destinations,
			recordings, keep_recordings_days)
		VALUES ($1, 1, 'active', true, 1, 1, '{}', true, 2)`,
		r.workspace,
	)
	rec, id := r.recorder(r.spool), r.call()
	r.begin(rec, id).Close()
	r.hangUp(id)
	r.mustRound(rec)
	if err := rec.Tidy(t.Context(), time.Now().Add(3*24*time.Hour)); err != nil {
		t.Errorf("Tidy: %v", err)
	} else if got := r.state(id); got != "leaving" {
		t.Errorf(`state of id = %q, want "leaving"`, got)
	}
}

func TestRecorder_ObjectionDeletesTheRecording(t *testing.T) {
	r := newFixture(t)
	rec, id := r.recorder(r.spool), r.call()
	tape := r.begin(rec, id)
	tape.Discard()
	if len(r.files()) != 0 {
		t.Error("the file exists after the objection")
	}
	second(tape)
	r.hangUp(id)
	r.mustRound(rec)
	r.mustRound(rec)
	switch {
	case r.state(id) != "gone":
		t.Errorf(`state of id = %v, want "gone"`, r.state(id))
	case len(r.s3.Objects()) != 0:
		t.Errorf("stored objects = %v, want 0", len(r.s3.Objects()))
	case len(r.publishedKeys(id)) != 0:
		t.Errorf("published recording keys = %d, want 0", len(r.publishedKeys(id)))
	case len(r.files()) != 0:
		t.Errorf("files in the spool = %v, want 0", len(r.files()))
	}
}

func TestRecorder_UploadsTheFilesOfAKilledProcess(t *testing.T) {
	r := newFixture(t)
	killed, id, empty, lost := r.recorder(r.spool), r.call(), r.call(), r.call()
	tape := r.begin(killed, id)
	tape.Close()
	file := filepath.Join(r.spool, id.String()+".wav")
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// During a call, the header of the file contains no sizes, and the file can end within a sample.
	if err := os.WriteFile(file, slices.Concat(recordings.Header(0), body[recordings.HeaderBytes:], []byte{9}),
		0o600); err != nil {
		t.Fatal(err)
	}
	r.begin(killed, lost).Close()
	_ = os.Remove(filepath.Join(r.spool, lost.String()+".wav"))
	r.begin(killed, empty).Close()
	if err := os.WriteFile(filepath.Join(r.spool, empty.String()+".wav"), recordings.Header(0)[:10], 0o600); err != nil {
		t.Fatal(err)
	}
	unknownFile := filepath.Join(r.spool, uuid.NewString()+".wav")
	if err := os.WriteFile(unknownFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, one := range []uuid.UUID{id, empty, lost} {
		r.hangUp(one)
	}
	elsewhere := r.recorder(t.TempDir()) // has another spool, like a recorder on another machine
	r.mustRound(elsewhere)
	if err := elsewhere.Tidy(t.Context(), time.Now()); err != nil {
		t.Errorf("Tidy: %v", err)
	} else if got := r.state(id); got != "recording" {
		t.Errorf(`state of id = %q, want "recording"`, got)
	}
	next := r.recorder(r.spool)
	r.mustRound(next)
	r.mustRound(next)
	if err := next.Tidy(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	switch {
	case r.state(id) != "stored":
		t.Errorf(`state of id = %v, want "stored"`, r.state(id))
	case r.state(lost) != "lost":
		t.Errorf(`state of lost = %v, want "lost"`, r.state(lost))
	case r.state(empty) != "gone":
		t.Errorf(`state of empty = %v, want "gone"`, r.state(empty))
	}
	r.object(1)
	if left := r.files(); len(left) != 0 {
		t.Errorf("files = %v", left)
	}
}

func TestRecorder_IgnoresTheFilesOfAnotherLiveProcess(t *testing.T) {
	r := newFixture(t)
	mine, beside, id := r.recorder(r.spool), r.recorder(r.spool), r.call()
	tape := r.begin(mine, id)
	r.mustRound(beside)
	switch err := beside.Tidy(t.Context(), time.Now()); {
	case err != nil:
		t.Errorf("Tidy: %v", err)
	case r.state(id) != "recording":
		t.Errorf(`state of id = %v, want "recording"`, r.state(id))
	case len(r.files()) != 1:
		t.Errorf("files in the spool = %v, want 1", len(r.files()))
	}
	tape.Close()
	r.hangUp(id)
	r.mustRound(mine)
	r.object(1)
}

func TestRecorder_MarksRecordingsOfAnUnreachableSpoolAsLost(t *testing.T) {
	r := newFixture(t)
	gone, id, erased := r.recorder(t.TempDir()), r.call(), r.call()
	r.begin(gone, id)
	r.begin(gone, erased)
	r.mustRound(gone)
	r.hangUp(id)
	r.hangUp(erased)
	erasure := r.erase(erased)
	here := r.recorder(r.spool)
	if err := here.Tidy(t.Context(), time.Now()); err != nil {
		t.Errorf("before the timeout: Tidy: %v", err)
	} else if got := r.state(id); got != "recording" {
		t.Errorf(`before the timeout: state of id = %q, want "recording"`, got)
	}
	r.exec(`UPDATE recording_spools SET seen_at = now() - interval '61 minutes'`)
	if err := here.Tidy(t.Context(), time.Now()); err != nil {
		t.Errorf("after the round: Tidy: %v", err)
	} else if got := r.state(id); got != "lost" {
		t.Errorf(`after the round: state of id = %q, want "lost"`, got)
	}
	r.mustRound(here)
	if done, _ := r.steps(); r.state(erased) != "gone" {
		t.Errorf(`erasure %s does not end: state of erased = %q, want "gone"`, erasure, r.state(erased))
	} else if !slices.Contains(done, erased.String()) {
		t.Errorf("erasure %s does not end: done = %v, want it to contain %v", erasure, done, erased.String())
	}
}

func TestTape_FileIsReadableBySox(t *testing.T) {
	r := newFixture(t)
	rec, id := r.recorder(r.spool), r.call()
	r.begin(rec, id).Close()
	body, err := os.ReadFile(r.files()[0])
	if err != nil {
		t.Fatal(err)
	}
	if size := binary.LittleEndian.Uint32(body[4:]); int(size) != len(body)-8 {
		t.Errorf("length in the header = %d, want %d", size, len(body))
	}
	sox, err := exec.LookPath("soxi")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("sox is missing: `make peers` installs it")
		}
		t.Skip("sox is missing: install Debian's sox to have it judge recordings")
	}
	for flag, want := range map[string]string{"-c": "2", "-r": "8000", "-e": "u-law", "-s": "8000"} {
		if output, err := exec.Command(sox, flag, r.files()[0]).Output(); err != nil {
			t.Errorf("Output: %v", err)
		} else if string(bytes.TrimSpace(output)) != want {
			t.Errorf("Output: bytes.TrimSpace(output) = %q, want %q; flag = %s", string(bytes.TrimSpace(output)), want, flag)
		}
	}
}
