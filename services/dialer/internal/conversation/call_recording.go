package conversation

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/recordings"
)

// startTimeout limits the start of a recording. Until the recording has started, the audio is kept
// in memory, so that the recording is complete.
const startTimeout = 5 * time.Second

// callRecording is the recording of one call. It starts after the recording notice was played. It
// is deleted if the person objects.
type callRecording struct {
	recorder            CallRecorder
	workspaceID, callID uuid.UUID

	mu           sync.Mutex
	conversation *Conversation
	recording    *recordings.Tape
	hasEnded     bool
}

func (t *callRecording) join(c *Conversation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conversation = c
}

// start starts the recording in the background, so that the conversation does not wait for the
// database.
func (t *callRecording) start() {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		pre := newPreRecording()
		if !t.passAudioTo(pre) {
			return
		}
		recording, err := t.recorder.Begin(ctx, t.workspaceID, t.callID)
		if err != nil {
			slog.Warn("recording not started", "call_id", t.callID, "error", err)
			t.passAudioTo(nil)
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.hasEnded { // the person objected or hung up during the start
			recording.Discard()
			return
		}
		t.recording = recording
		pre.attach(recording)
	}()
}

// passAudioTo makes the conversation pass its audio to target. If target is nil, the conversation
// stops passing its audio. passAudioTo returns false if the recording has already ended.
func (t *callRecording) passAudioTo(target *preRecording) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.hasEnded:
		return false
	case target == nil:
		t.conversation.Record(nil)
	default:
		t.conversation.Record(target)
	}
	return true
}

// preRecording keeps audio in memory until the recording exists. Then it passes the kept audio, and
// all later audio, to the recording.
type preRecording struct {
	mu            sync.Mutex
	recording     *recordings.Tape
	person, agent []byte
}

func newPreRecording() *preRecording {
	const maxBytes = int(startTimeout/time.Second) * recordings.BytesPerSecond / 2 // bytes per side
	return &preRecording{person: make([]byte, 0, maxBytes), agent: make([]byte, 0, maxBytes)}
}

// Tick passes one frame of each side to the recording. Until the recording exists, Tick buffers
// the frames and drops frames that do not fit. Tick allocates no memory.
func (l *preRecording) Tick(person, agent []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recording != nil {
		l.recording.Tick(person, agent)
	} else if len(l.person)+len(person) <= cap(l.person) && len(l.agent)+len(agent) <= cap(l.agent) {
		l.person, l.agent = append(l.person, person...), append(l.agent, agent...)
	}
}

func (l *preRecording) attach(recording *recordings.Tape) {
	l.mu.Lock()
	defer l.mu.Unlock()
	recording.Tick(l.person, l.agent)
	l.recording, l.person, l.agent = recording, nil, nil
}

func (t *callRecording) discard() { t.end((*recordings.Tape).Discard) }

func (t *callRecording) close() { t.end((*recordings.Tape).Close) }

func (t *callRecording) end(how func(*recordings.Tape)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hasEnded {
		return
	}
	t.hasEnded = true
	if t.conversation != nil {
		t.conversation.Record(nil)
	}
	if t.recording != nil {
		how(t.recording)
	}
}
