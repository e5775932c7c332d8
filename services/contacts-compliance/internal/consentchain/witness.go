package consentchain

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Witness is one line of the log of heads, which lies outside the database: at this instant the workspace's chain had so many rows, and
// this was the last one's MAC. A writer counts its lines, so that one which is missing between two others shows.
type Witness struct {
	At          time.Time `json:"at"`
	Writer      string    `json:"writer"`
	Line        int64     `json:"line"`
	WorkspaceID uuid.UUID `json:"workspace_id"`
	Count       int64     `json:"count"`
	Hash        string    `json:"hash"`
	KeyID       string    `json:"key"`
	Sum         string    `json:"mac"`
}

// Sign fills KeyID and Sum.
func (w *Witness) Sign(keys *Keys) {
	w.KeyID = keys.first
	w.Sum = hex.EncodeToString(keys.sum(w.KeyID, w.bytes()))
}

func (w *Witness) bytes() []byte {
	var out writer
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

// Heads is what a log of heads says: the farthest known place of each chain, and what is wrong with the log itself.
type Heads struct {
	Of     map[uuid.UUID]Link
	Faults []string
	// Lines were read; Cut of them were no line of ours: a crash cuts its writer's last one short. One that was spoilt between two others of
	// its writer is a fault, as a missing one is.
	Lines, Cut int64

	keys  *Keys
	lines map[string]int64
}

// NewHeads is the reading of an empty log.
func NewHeads(keys *Keys) *Heads {
	return &Heads{Of: map[uuid.UUID]Link{}, keys: keys, lines: map[string]int64{}}
}

// mostFaults bounds what is listed; one is enough.
const mostFaults = 20

func (h *Heads) fault(format string, args ...any) {
	if len(h.Faults) < mostFaults {
		h.Faults = append(h.Faults, fmt.Sprintf("line %d of the head log: ", h.Lines)+fmt.Sprintf(format, args...))
	}
}

// Read takes the log's next line, without its end. The first line of a writer may have any number: older files may have been put away.
func (h *Heads) Read(line []byte) {
	h.Lines++
	var w Witness
	if err := json.Unmarshal(line, &w); err != nil {
		h.Cut++
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
		h.fault("writer %s goes on at %d after %d: lines are missing, or stand elsewhere", w.Writer, w.Line, before)
	}
	h.lines[w.Writer] = w.Line
	known := h.Of[w.WorkspaceID]
	switch {
	case w.Count > known.Seq:
		h.Of[w.WorkspaceID] = Link{Seq: w.Count, MAC: last}
	case w.Count == known.Seq && string(last) != string(known.MAC):
		h.fault("workspace %s had two different chains of %d rows", w.WorkspaceID, w.Count)
	}
}
