package conversation

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/recordings"
)

// threading bounds how long the beginning of a recording may take: what is said until then is kept in memory, and comes onto it.
const threading = 5 * time.Second

// taped is the recording of one call: begun once the person knows of it, nothing once they do not want it.
type taped struct {
	recorder            CallRecorder
	workspaceID, callID uuid.UUID

	mu    sync.Mutex
	into  *Conversation
	tape  *recordings.Tape
	ended bool
}

// join says which conversation is recorded.
func (t *taped) join(c *Conversation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.into = c
}

// begin puts the tape in, beside the conversation, which does not wait for it.
func (t *taped) begin() {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), threading)
		defer cancel()
		before := newLeader()
		if !t.record(before) {
			return
		}
		tape, err := t.recorder.Begin(ctx, t.workspaceID, t.callID)
		if err != nil {
			slog.Warn("a call is not recorded", "call_id", t.callID, "error", err)
			t.record(nil)
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.ended { // the person has said no, or has gone
			tape.Discard()
			return
		}
		t.tape = tape
		before.threaded(tape)
	}()
}

// record has what is said go to a leader, or nowhere; false: not any more.
func (t *taped) record(to *leader) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return false
	case to == nil:
		t.into.Record(nil)
	default:
		t.into.Record(to)
	}
	return true
}

// leader is what runs before the tape: it keeps what is said until there is one, and gives it that and all that follows.
type leader struct {
	mu            sync.Mutex
	tape          *recordings.Tape
	person, agent []byte
}

func newLeader() *leader {
	const most = int(threading/time.Second) * recordings.BytesPerSecond / 2 // of each side
	return &leader{person: make([]byte, 0, most), agent: make([]byte, 0, most)}
}

// Tick takes 20 ms of both sides. It does not allocate: what is beyond its room is not kept.
func (l *leader) Tick(person, agent []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tape != nil {
		l.tape.Tick(person, agent)
	} else if len(l.person)+len(person) <= cap(l.person) && len(l.agent)+len(agent) <= cap(l.agent) {
		l.person, l.agent = append(l.person, person...), append(l.agent, agent...)
	}
}

func (l *leader) threaded(tape *recordings.Tape) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tape.Tick(l.person, l.agent)
	l.tape, l.person, l.agent = tape, nil, nil
}

// discard has nothing recorded, then or now.
func (t *taped) discard() { t.end((*recordings.Tape).Discard) }

// close ends the recording with the conversation.
func (t *taped) close() { t.end((*recordings.Tape).Close) }

func (t *taped) end(how func(*recordings.Tape)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	if t.into != nil {
		t.into.Record(nil)
	}
	if t.tape != nil {
		how(t.tape)
	}
}
