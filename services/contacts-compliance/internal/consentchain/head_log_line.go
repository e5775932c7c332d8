package consentchain

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// HeadLogLine is one line of the head log, a file outside the database. It contains the last row of
// a workspace's chain at one time. Each process that writes to the log numbers its lines, so a
// missing line is detected.
type HeadLogLine struct {
	At          time.Time `json:"at"`
	Writer      string    `json:"writer"`
	Line        int64     `json:"line"`
	WorkspaceID uuid.UUID `json:"workspace_id"`
	Count       int64     `json:"count"`
	Hash        string    `json:"hash"`
	KeyID       string    `json:"key"`
	Sum         string    `json:"mac"`
}

// Sign signs the line with the first key. It sets KeyID and Sum.
func (w *HeadLogLine) Sign(keys *Keys) {
	w.KeyID = keys.first
	w.Sum = hex.EncodeToString(keys.sum(w.KeyID, w.bytes()))
}

func (w *HeadLogLine) bytes() []byte {
	var out fieldWriter
	out.text("consent witness 1")
	out.number(w.At.UnixMicro())
	out.text(w.Writer)
	out.number(w.Line)
	out.raw(w.WorkspaceID[:])
	out.number(w.Count)
	out.text(w.Hash)
	out.text(w.KeyID)
	return out.out
}

// HeadLogReader reads a head log. It collects the last row of each chain and the faults of the log.
type HeadLogReader struct {
	Last   map[uuid.UUID]Link
	Faults []string
	// Lines is the number of lines. Incomplete is the number of lines that are not JSON. Such a
	// line alone is no fault, because a crash can truncate the last line of a writer.
	Lines, Incomplete int64

	keys  *Keys
	lines map[string]int64
}

// NewHeadLogReader returns a reader that verifies the lines with keys.
func NewHeadLogReader(keys *Keys) *HeadLogReader {
	return &HeadLogReader{Last: map[uuid.UUID]Link{}, keys: keys, lines: map[string]int64{}}
}

const maxFaults = 20

func (h *HeadLogReader) fault(format string, args ...any) {
	if len(h.Faults) < maxFaults {
		h.Faults = append(h.Faults, fmt.Sprintf("line %d of the head log: ", h.Lines)+fmt.Sprintf(format, args...))
	}
}

// ReadLine processes the next line, without its line feed. The first line of a writer can have any
// number, because an operator can move older files away.
func (h *HeadLogReader) ReadLine(line []byte) {
	h.Lines++
	var w HeadLogLine
	if err := json.Unmarshal(line, &w); err != nil {
		h.Incomplete++
		return
	}
	sum, err := hex.DecodeString(w.Sum)
	if err == nil {
		err = h.keys.check(w.KeyID, w.bytes(), sum)
	}
	last, err2 := hex.DecodeString(w.Hash)
	if err = errors.Join(err, err2); err != nil {
		h.fault("%v", err)
		return
	}
	if before, known := h.lines[w.Writer]; known && w.Line != before+1 {
		h.fault("writer %s continues at %d after %d: lines are missing or in another order", w.Writer, w.Line, before)
	}
	h.lines[w.Writer] = w.Line
	known := h.Last[w.WorkspaceID]
	switch {
	case w.Count > known.Seq:
		h.Last[w.WorkspaceID] = Link{Seq: w.Count, MAC: last}
	case w.Count == known.Seq && string(last) != string(known.MAC):
		h.fault("workspace %s had two different chains of %d rows", w.WorkspaceID, w.Count)
	}
}
