package recordings

import (
	"errors"
	"os"
	"sync"
)

const (
	// usualBuffer is the initial size of the buffer between two writes to the file, 2 s of audio.
	// maxBuffer is its maximum size while the disk is slow, 10 s of audio.
	usualBuffer, maxBuffer = 2 * BytesPerSecond, 10 * BytesPerSecond
)

// Tape is the recording of one live call.
type Tape struct {
	onEnd func()

	mu     sync.Mutex
	sound  []byte
	broken bool
	ended  bool
	gone   bool

	fileMu sync.Mutex // locked while the file is written
	file   *os.File
	spare  []byte
}

func newTape(file *os.File) *Tape {
	return &Tape{file: file, onEnd: func() {}, sound: make([]byte, 0, usualBuffer), spare: make([]byte, 0, usualBuffer)}
}

// Tick records 20 ms of audio of both sides. It does not wait for disk writes.
func (t *Tape) Tick(person, agent []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.broken {
		return
	}
	if len(t.sound) >= maxBuffer { // stop recording: a gap would shift all later audio
		t.broken = true
		return
	}
	t.sound = Append(t.sound, person, agent)
}

var errSlow = errors.New("the disk is too slow")

// writeBuffer writes the buffered audio to the file. An error ends the recording. Further calls
// then return no error.
func (t *Tape) writeBuffer() error {
	t.fileMu.Lock()
	defer t.fileMu.Unlock()
	if t.file == nil {
		return nil
	}
	t.mu.Lock()
	taken, was := t.sound, t.broken
	t.sound = t.spare[:0]
	t.mu.Unlock()
	_, err := t.file.Write(taken)
	t.spare = taken[:0]
	if was && err == nil && len(taken) > 0 {
		return errSlow
	}
	if err != nil {
		t.mu.Lock()
		t.broken = true
		t.mu.Unlock()
	}
	return err
}

// Close ends the recording and completes its file. Later calls have no effect.
func (t *Tape) Close() { t.end(false) }

// Discard ends the recording and deletes its file before it returns.
func (t *Tape) Discard() { t.end(true) }

func (t *Tape) end(discard bool) {
	t.mu.Lock()
	first := !t.ended
	t.ended = true
	t.mu.Unlock()
	if !first {
		return
	}
	if !discard {
		_ = t.writeBuffer() // if this write fails, the file keeps the earlier audio
	}
	t.fileMu.Lock()
	if discard {
		_ = os.Remove(t.file.Name())
	} else {
		_, _ = repairHeader(t.file) // if this fails, completeFiles repairs the header
	}
	_ = t.file.Close()
	t.file = nil
	t.fileMu.Unlock()
	t.mu.Lock()
	t.gone, t.sound = discard, nil
	t.mu.Unlock()
	t.onEnd()
}

// fileState reports whether the file is complete, and whether it was discarded.
func (t *Tape) fileState() (ended, discarded bool) {
	t.fileMu.Lock()
	defer t.fileMu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.file == nil, t.gone
}
