package recordings

import (
	"errors"
	"os"
	"sync"
)

const (
	// roomy is what a tape keeps in memory between two writes, and mostKept what it keeps at most, 10 s, while the disk does not take it.
	roomy, mostKept = 2 * BytesPerSecond, 10 * BytesPerSecond
)

// Tape is one call's recording while it goes on.
type Tape struct {
	over func()

	mu     sync.Mutex
	sound  []byte
	broken bool // no more is taken
	ended  bool
	gone   bool // it is to be as if it had never been

	disk  sync.Mutex // held while the file is written
	file  *os.File
	spare []byte
}

func newTape(file *os.File) *Tape {
	return &Tape{file: file, over: func() {}, sound: make([]byte, 0, roomy), spare: make([]byte, 0, roomy)}
}

// Tick takes 20 ms of both sides. It does not wait for the disk.
func (t *Tape) Tick(person, agent []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.broken {
		return
	}
	if len(t.sound) >= mostKept { // a gap would move all that follows
		t.broken = true
		return
	}
	t.sound = Append(t.sound, person, agent)
}

var errSlow = errors.New("the disk is too slow")

// flush writes what was taken. An error comes once, and is the end of the recording.
func (t *Tape) flush() error {
	t.disk.Lock()
	defer t.disk.Unlock()
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

// Close ends the recording: its file is whole then. Again, it does nothing.
func (t *Tape) Close() { t.end(false) }

// Discard ends the recording and leaves nothing of it. Once it returns the file is gone.
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
		_ = t.flush() // what could not be written is not there
	}
	t.disk.Lock()
	if discard {
		_ = os.Remove(t.file.Name())
	} else {
		_, _ = fix(t.file) // it is mended again before it leaves
	}
	_ = t.file.Close()
	t.file = nil
	t.disk.Unlock()
	t.mu.Lock()
	t.gone, t.sound = discard, nil
	t.mu.Unlock()
	t.over()
}

// state says whether the file is whole, and whether it was discarded.
func (t *Tape) state() (over, discarded bool) {
	t.disk.Lock()
	defer t.disk.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.file == nil, t.gone
}
