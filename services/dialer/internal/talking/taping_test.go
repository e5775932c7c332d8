package talking_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/scripted"
	"ringfence.dev/services/dialer/internal/recording"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/store/recordings"
	"ringfence.dev/services/dialer/internal/storing"
	"ringfence.dev/services/dialer/internal/talking"
	"ringfence.dev/services/dialer/internal/wav"
	"ringfence.dev/services/dialer/migrations"
)

// studio is a recorder whose every call is in the database, and is recorded if its agent can say so.
type studio struct {
	*recording.Recorder
	pool  *pgxpool.Pool
	spool string
}

func newStudio(t *testing.T) studio {
	t.Helper()
	pool := pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: migrations.FS})
	dir, err := storing.NewDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := studio{pool: pool, spool: t.TempDir()}
	spool, err := recording.OpenSpool(s.spool)
	if err != nil {
		t.Fatal(err)
	}
	s.Recorder = recording.New(spool, recordings.New(pool, spool.Name()), store.New(pool, uuid.New(), store.Timing{}), dir, time.Hour, func() {}, prometheus.NewRegistry())
	return s
}

// Begin makes the call, which the rig does not, and its tape.
func (s studio) Begin(ctx context.Context, workspaceID, callID uuid.UUID) (*recording.Tape, error) {
	if _, err := s.pool.Exec(ctx, `INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status, max_call_seconds, deadline_at)
		VALUES ($1, $2, 'inbound', '+14155550111', '+14155550100', $1, 'in_progress', 600, now())`, callID, workspaceID); err != nil {
		return nil, err
	}
	return s.Recorder.Begin(ctx, workspaceID, callID)
}

// sound is how much was recorded, over all files; -1: there is none.
func (s studio) sound(t *testing.T) time.Duration {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.spool, "*.wav"))
	if err != nil || len(files) == 0 {
		return -1
	}
	info, err := os.Stat(files[0])
	if err != nil {
		return -1
	}
	return time.Duration(info.Size()-wav.HeaderBytes) * time.Second / wav.BytesPerSecond
}

func afterwards(wait time.Duration, do func()) func() bool { return time.AfterFunc(wait, do).Stop }

// objecting is a scripted agent that calls a tool after a while.
type objecting struct {
	*scripted.Opener
	tool  string
	wait  time.Duration
	found func() // what there is when the tool is answered
}

type objector struct {
	agent.Session
	events chan agent.Event
	found  func()
}

func (o objecting) Open(ctx context.Context, spec agent.Spec) (agent.Session, error) {
	inner, err := o.Opener.Open(ctx, spec)
	s := &objector{Session: inner, events: make(chan agent.Event, 16), found: o.found}
	go func() {
		defer close(s.events)
		later := time.NewTimer(o.wait)
		for {
			select {
			case <-later.C:
				s.events <- agent.Event{Kind: agent.ToolCall, Tool: o.tool, ID: "1", Args: json.RawMessage("{}")}
			case e, open := <-inner.Events():
				if !open {
					return
				}
				s.events <- e
			}
		}
	}()
	return s, err
}

func (s *objector) Events() <-chan agent.Event         { return s.events }
func (s *objector) ToolResult(string, json.RawMessage) { s.found() }

const speaks = `{"script":{"tone_hz":440,"tone_millis":1000,"end_after_millis":2000,"speaks":true}}`

func TestRecording_OfATalk(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, settings string
		least, most    time.Duration
	}{
		{"from the notice to the end", speaks, 1200 * time.Millisecond, 1600 * time.Millisecond},
		{"an agent that cannot say it", `{"script":{"tone_hz":440,"tone_millis":300,"end_after_millis":900}}`, -1, -1},
		{"an agent that is never recorded", `{"recording":{"off":true},"script":{"tone_millis":300,"end_after_millis":900,"speaks":true}}`, -1, -1},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newStudio(t)
			r := newRecordedRig(t, row.settings, s, nil)
			r.pickUp()
			r.waitOver()
			r.talk.End()
			if got := s.sound(t); got < row.least || got > row.most {
				t.Errorf("%s were recorded, want %s to %s", got, row.least, row.most)
			}
		})
	}
}

func TestRecording_NothingIsLeftWhenThePersonObjects(t *testing.T) {
	t.Parallel()
	s := newStudio(t)
	before, answered := make(chan time.Duration, 1), make(chan time.Duration, 1)
	agents := map[string]agent.Opener{agent.Scripted: objecting{scripted.New(afterwards), agent.ToolStopRecording, 1500 * time.Millisecond, func() { answered <- s.sound(t) }}}
	r := newRecordedRig(t, speaks, s, agents)
	r.pickUp()
	go func() {
		for s.sound(t) < 0 {
			time.Sleep(10 * time.Millisecond)
		}
		before <- s.sound(t)
	}()
	select {
	case <-before:
	case <-time.After(patience):
		t.Fatal("nothing was recorded")
	}
	if left := <-answered; left >= 0 {
		t.Errorf("%s are on the disk when the agent says that nothing is", left)
	}
	r.waitOver()
	r.talk.End()
	if s.sound(t) >= 0 {
		t.Error("it was recorded again")
	}
}

var _ talking.Recorder = studio{}
