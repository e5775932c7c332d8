package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
)

// The kinds of journal entries. GET /log does not show entries of the kind "said".
const (
	KindOriginate = "originate"
	KindRinging   = "ringing"
	KindAnswer    = "answer"
	KindUtterance = "said"
	KindHangup    = "hangup"
)

// Entry is one event on the telephone network.
type Entry struct {
	Seq    int64     `json:"seq"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	CallID string    `json:"call_id"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	// Inbound is true for a call to the dialer.
	Inbound bool `json:"inbound,omitempty"`
	// Text is what the person said. Only entries of the kind "said" have it.
	Text string `json:"text,omitempty"`
	// Cause is the Q.850 name of the cause. By is the party that ended the call: caller, callee,
	// carrier or dialer. Only entries of the kind "hangup" have these fields.
	Cause string `json:"cause,omitempty"`
	By    string `json:"by,omitempty"`
	// DialedAt is the time in the dialer's originate request. All events of the call contain this
	// time.
	DialedAt *time.Time `json:"dialed_at,omitempty"`
	// An entry with Unreported is not in the event feed. An entry with Echo repeats an earlier
	// event in the feed, with the time of that event. The events of the feed contain neither field.
	Unreported bool `json:"untold,omitempty"`
	Echo       bool `json:"echo,omitempty"`
}

// indexEvery is the number of entries between two indexed file offsets.
const indexEvery = 64

// Journal is the append-only log, with one line of JSON per entry. Its first line contains the name
// of the event feed. Every entry is written immediately, so a killed process loses none, but the
// file is not synced to the disk.
type Journal struct {
	mu      sync.Mutex
	file    *os.File
	feed    string
	last    int64
	lastAt  time.Time
	size    int64
	offsets []int64 // the file offsets of the entries 1, 1+indexEvery, …
	grown   chan struct{}
}

// OpenJournal opens or creates the journal in a directory and passes every entry to the function
// replay. It removes an incomplete last line.
func OpenJournal(dir string, replay func(Entry)) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make journal directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "calls.jsonl"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{file: file, grown: make(chan struct{})}
	if err := j.load(replay); err != nil {
		_ = file.Close()
		return nil, err
	}
	return j, nil
}

func (j *Journal) load(replay func(Entry)) error {
	reader := bufio.NewReaderSize(j.file, 1<<16)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // the last line is incomplete
		}
		if err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		if j.feed == "" {
			var head struct{ Feed string }
			if err := json.Unmarshal(line, &head); err != nil || head.Feed == "" {
				return fmt.Errorf("read journal %s: its first line contains no feed name", j.file.Name())
			}
			j.feed, j.size = head.Feed, int64(len(line))
			continue
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read journal entry after %d: %w", j.last, err)
		}
		j.remember(e, len(line))
		replay(e)
	}
	if err := j.file.Truncate(j.size); err != nil {
		return fmt.Errorf("truncate journal: %w", err)
	}
	if j.feed != "" {
		return nil
	}
	j.feed = uuid.NewString()
	head := fmt.Sprintf("{\"feed\":%q}\n", j.feed)
	if _, err := j.file.WriteAt([]byte(head), 0); err != nil {
		return fmt.Errorf("write first line of journal: %w", err)
	}
	j.size = int64(len(head))
	return nil
}

func (j *Journal) remember(e Entry, length int) {
	if (e.Seq-1)%indexEvery == 0 {
		j.offsets = append(j.offsets, j.size)
	}
	j.last = e.Seq
	if !e.Echo {
		j.lastAt = e.At
	}
	j.size += int64(length)
}

// Append writes an entry with the next number. The time of the entry is later than the time of the
// previous entry. An echo keeps the time of the original event.
func (j *Journal) Append(e Entry) (Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Seq = j.last + 1
	if !e.Echo {
		e.At = time.Now().UTC().Truncate(time.Microsecond)
		if !e.At.After(j.lastAt) {
			e.At = j.lastAt.Add(time.Microsecond)
		}
	}
	line, err := json.Marshal(e)
	if err != nil {
		return e, fmt.Errorf("encode journal entry: %w", err)
	}
	line = append(line, '\n')
	if _, err := j.file.WriteAt(line, j.size); err != nil {
		_ = j.file.Truncate(j.size)
		return e, fmt.Errorf("append journal entry: %w", err)
	}
	j.remember(e, len(line))
	close(j.grown)
	j.grown = make(chan struct{})
	return e, nil
}

// Feed returns the name of the event feed that this journal contains. Each new journal has a new
// name.
func (j *Journal) Feed() string { return j.feed }

// Grown returns a channel that is closed as soon as the journal has an entry after the entry with
// the given number.
func (j *Journal) Grown(number int64) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last > number {
		done := make(chan struct{})
		close(done)
		return done
	}
	return j.grown
}

// Read passes the entries after the entry with the given number to yield, in order, until yield
// returns false.
func (j *Journal) Read(number int64, yield func(Entry) bool) error {
	number = max(number, 0)
	j.mu.Lock()
	block := int(number / indexEvery)
	if block >= len(j.offsets) {
		j.mu.Unlock()
		return nil
	}
	from, size := j.offsets[block], j.size
	j.mu.Unlock()

	reader := bufio.NewReaderSize(io.NewSectionReader(j.file, from, size-from), 1<<16)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("decode journal entry: %w", err)
		}
		if e.Seq > number && !yield(e) {
			return nil
		}
	}
}

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }
