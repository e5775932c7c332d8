package talking

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/bridge"
	"ringfence.dev/services/dialer/internal/recording"
)

// threading bounds how long the beginning of a recording may take: what is said until then is not on it.
const threading = 5 * time.Second

// taped is the recording of one call: begun once the person knows of it, nothing once they do not want it.
type taped struct {
	recorder            Recorder
	workspaceID, callID uuid.UUID

	mu    sync.Mutex
	into  *bridge.Conversation
	tape  *recording.Tape
	ended bool
}

// join says which conversation is recorded.
func (t *taped) join(c *bridge.Conversation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.into = c
}

// begin puts the tape in, beside the conversation, which does not wait for it.
func (t *taped) begin() {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), threading)
		defer cancel()
		tape, err := t.recorder.Begin(ctx, t.workspaceID, t.callID)
		if err != nil {
			slog.Warn("a call is not recorded", "call_id", t.callID, "error", err)
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.ended { // the person has said no, or has gone
			tape.Discard()
			return
		}
		t.tape = tape
		t.into.Record(tape)
	}()
}

// discard has nothing recorded, then or now.
func (t *taped) discard() { t.end((*recording.Tape).Discard) }

// close ends the recording with the conversation.
func (t *taped) close() { t.end((*recording.Tape).Close) }

func (t *taped) end(how func(*recording.Tape)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	if t.tape != nil {
		t.into.Record(nil)
		how(t.tape)
	}
}
