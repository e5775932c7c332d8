package conversation_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/conversation"
	"ringfence.dev/services/dialer/internal/recordings"
	"ringfence.dev/services/dialer/internal/store"
)

type fakeRecorder struct {
	*recordings.Recorder
	pool  *pgxpool.Pool
	spool string
	// connectedTime returns how long the person has been connected. requestedAt and startedAt are
	// values of connectedTime.
	connectedTime          func() time.Duration
	requestedAt, startedAt atomic.Int64
	// slow is the delay between the request for a recording and its creation.
	slow time.Duration
}

func newFakeRecorder(t *testing.T) *fakeRecorder {
	t.Helper()
	pool := pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	dir, err := recordings.NewDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeRecorder{pool: pool, spool: t.TempDir(), connectedTime: func() time.Duration { return 0 }}
	spool, err := recordings.OpenSpool(s.spool)
	if err != nil {
		t.Fatal(err)
	}
	s.Recorder = recordings.New(
		spool,
		store.NewRecordings(pool, spool.Name()),
		store.New(pool, uuid.New(), store.Timing{}),
		dir,
		time.Hour,
		func() {},
		prometheus.NewRegistry(),
	)
	return s
}

// Begin first stores the call, because the fixture does not store it. Then it starts the recording.
func (s *fakeRecorder) Begin(ctx context.Context, workspaceID, callID uuid.UUID) (tape *recordings.Tape, err error) {
	s.requestedAt.Store(int64(s.connectedTime()))
	for s.connectedTime() < time.Duration(s.requestedAt.Load())+s.slow {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	defer func() { s.startedAt.Store(int64(s.connectedTime())) }()
	if _, err = s.pool.Exec(ctx, `INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status, max_call_seconds, deadline_at)
		VALUES ($1, $2, 'inbound', '+14155550111', '+14155550100', $1, 'in_progress', 600, now())`, callID, workspaceID); err != nil {
		return nil, err
	}
	return s.Recorder.Begin(ctx, workspaceID, callID)
}

// sound returns the length of the audio in the recording's file, or -1 if there is no file.
func (s *fakeRecorder) sound(t *testing.T) time.Duration {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.spool, "*.wav"))
	if err != nil || len(files) == 0 {
		return -1
	}
	info, err := os.Stat(files[0])
	if err != nil {
		return -1
	}
	return time.Duration(info.Size()-recordings.HeaderBytes) * time.Second / recordings.BytesPerSecond
}

func afterwards(wait time.Duration, do func()) func() bool { return time.AfterFunc(wait, do).Stop }

// objectingAgent is an agent that calls the tool stop_recording after some time.
type objectingAgent struct {
	*agent.ScriptedOpener
	tool  string
	when  <-chan struct{}
	found func()
}

type objector struct {
	agent.Session
	events chan agent.Event
	found  func()
}

func (o objectingAgent) Open(ctx context.Context, spec agent.Spec) (agent.Session, error) {
	inner, err := o.ScriptedOpener.Open(ctx, spec)
	s := &objector{Session: inner, events: make(chan agent.Event, 16), found: o.found}
	go func() {
		defer close(s.events)
		when := o.when
		for {
			select {
			case <-when:
				when = nil
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

func TestRecording_ContainsAudioReceivedAfterTheFileExists(t *testing.T) {
	t.Parallel()
	s := newFakeRecorder(t)
	recorded, heard := recordCall(t, s)
	if recorded < heard/2 {
		t.Errorf("recorded = %v, want at least half of the %v of audio received since the start", recorded, heard)
	}
}

// While the row of the recording is being inserted into the database, the audio is kept in memory.
// The recording must also contain this audio.
func TestRecording_ContainsAudioFromBeforeTheFileExists(t *testing.T) {
	t.Parallel()
	s := newFakeRecorder(t)
	s.slow = time.Second
	recorded, heard := recordCall(t, s)
	if want := heard + s.slow/2; recorded < want {
		t.Errorf("recorded = %v, want at least %v: the recording was created %v after it was requested", recorded, want,
			s.slow)
	}
}

// recordCall records a call. recorded is the length of the recording. heard is the length of the
// audio that the person received after the recording was created.
func recordCall(t *testing.T, s *fakeRecorder) (recorded, heard time.Duration) {
	t.Helper()
	r := newRecordedCallTest(t, `{"script":{"tone_hz":440,"tone_millis":60000,"speaks":true}}`, s, nil)
	s.connectedTime = r.person.time
	r.pickUp()
	testkit.Until(t, "half a second is recorded", func() bool {
		heard = s.connectedTime() - time.Duration(s.startedAt.Load())
		return s.startedAt.Load() > 0 && heard > 500*time.Millisecond
	})
	r.call.End()
	return s.sound(t), heard
}

func TestRecording_DoesNotStartWithoutANotice(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{
		"an agent that cannot":            `{"script":{"tone_hz":440,"tone_millis":300,"end_after_millis":900}}`,
		"an agent that is never recorded": `{"recording":{"off":true},"script":{"tone_millis":300,"end_after_millis":900,"speaks":true}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeRecorder(t)
			r := newRecordedCallTest(t, settings, s, nil)
			r.pickUp()
			r.waitOver()
			r.call.End()
			if got := s.sound(t); got >= 0 {
				t.Errorf("recorded audio = %s, want none", got)
			}
		})
	}
}

func TestRecording_IsDeletedAfterAnObjection(t *testing.T) {
	t.Parallel()
	s := newFakeRecorder(t)
	recorded, answered := make(chan struct{}), make(chan time.Duration, 1)
	agents := map[string]agent.Opener{
		agent.Scripted: objectingAgent{
			agent.New(afterwards),
			agent.ToolStopRecording,
			recorded,
			func() { answered <- s.sound(t) },
		},
	}
	r := newRecordedCallTest(t, `{"script":{"tone_hz":440,"tone_millis":60000,"speaks":true}}`, s, agents)
	s.connectedTime = r.person.time
	r.pickUp()
	testkit.Until(t, "it is recorded", func() bool {
		return s.startedAt.Load() > 0 && s.connectedTime() > time.Duration(s.startedAt.Load())+300*time.Millisecond
	})
	if s.sound(t) < 0 {
		t.Error("no file before the objection")
	}
	close(recorded)
	if left := <-answered; left >= 0 {
		t.Errorf("recorded audio after the tool result = %s, want none", left)
	}
	r.call.End()
	if s.sound(t) >= 0 {
		t.Error("the call was recorded after the objection")
	}
}

var _ conversation.CallRecorder = (*fakeRecorder)(nil)
