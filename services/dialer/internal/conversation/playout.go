package conversation

import (
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

const (
	// maxQueued is the capacity of the queue: five minutes of audio. Audio that does not fit is
	// dropped and counted.
	maxQueued = 5 * 60 * agent.BytesPerSecond
	// partialFrameTicks is the number of ticks (of 20 ms) for which an incomplete frame waits for more
	// audio. After that, the rest of the frame is silence.
	partialFrameTicks = 2
	// silence is the mu-law byte of a silent sample.
	silence = 0xff
)

// piece is the queued audio of one item of the agent.
type piece struct {
	id     string
	chunks [][]byte
	// chunk and offset are the position of the next byte to play. played and total are numbers of
	// bytes. recorded is the number of the played bytes that the transcript already includes.
	chunk, offset           int
	played, total, recorded int
	unsent                  int // number of played bytes whose frames were not sent
	keep, done              bool
	// began and last are the times of the first and the last played frame that contains audio of the
	// piece. Both are zero if no frame was played.
	began, last time.Time
}

func (p *piece) unplayedBytes() int { return p.total - p.played }

// share is the part of a frame that came from one piece. It contains the previous times of the
// piece, so that revertFrame can restore them.
type share struct {
	piece                       *piece
	bytes                       int
	at                          time.Time
	previousBegan, previousLast time.Time
}

func (p *piece) setPlayTimes(now time.Time) {
	if p.began.IsZero() {
		p.began = now
	}
	p.last = now
}

// readFrame copies the next audio of the piece to dst. It allocates no memory.
func (p *piece) readFrame(dst []byte) (n int) {
	for n < len(dst) && p.chunk < len(p.chunks) {
		copied := copy(dst[n:], p.chunks[p.chunk][p.offset:])
		n += copied
		if p.offset += copied; p.offset == len(p.chunks[p.chunk]) {
			p.chunks[p.chunk] = nil
			p.chunk, p.offset = p.chunk+1, 0
		}
	}
	p.played += n
	return n
}

// playout is the queue of the agent's audio. The agent adds audio of any size, and the stream takes
// frames of 20 ms. It is not safe for concurrent use.
type playout struct {
	pieces []*piece
	// headIndex is the index of the first piece that was not played completely. The earlier pieces
	// stay in the slice until removePlayed removes them.
	headIndex   int
	queuedBytes int // number of queued bytes
	stopped     bool
	waitedTicks int // number of ticks for which the incomplete frame has waited so far
	now         time.Time
	// frameShares contains the shares of the last frame.
	frameShares []share
	// unsentShares contains shares of unsent frames. They must be subtracted from the transcript.
	unsentShares []share
	ratchet      ratchet
	// dropped is the number of bytes that did not fit into the queue.
	dropped int64
	// trimmed is the number of silent frames that were dropped to shorten the queue (see ratchet).
	trimmed int64
}

func (q *playout) addAudio(id string, audio []byte, keep bool) {
	if q.stopped {
		return
	}
	if q.queuedBytes+len(audio) > maxQueued {
		q.dropped += int64(len(audio))
		return
	}
	p := q.findPiece(id)
	if p == nil || p.done {
		p = &piece{id: id, keep: keep}
		q.pieces = append(q.pieces, p)
	}
	p.chunks = append(p.chunks, audio)
	p.total += len(audio)
	q.queuedBytes += len(audio)
	q.ratchet.arrived += len(audio)
}

// finishItem adds an empty piece for an item without audio, so that the item has a position in the
// order of the queue.
func (q *playout) finishItem(id string) {
	p := q.findPiece(id)
	if p == nil {
		p = &piece{id: id}
		q.pieces = append(q.pieces, p)
	}
	p.done = true
}

// addMark appends a mark, an item without audio. A barge-in does not remove it. When playback
// reaches the mark, all earlier audio was played or discarded.
func (q *playout) addMark(id string) {
	q.pieces = append(q.pieces, &piece{id: id, keep: true, done: true})
}

func (q *playout) findPiece(id string) *piece {
	for i := len(q.pieces) - 1; i >= q.headIndex; i-- {
		if q.pieces[i].id == id {
			return q.pieces[i]
		}
	}
	return nil
}

// nextFrame writes the next frame to dst. hasFrame is false if there is no frame to send. changed
// is true if an item began or ended, or if the queue became empty.
func (q *playout) nextFrame(dst []byte) (hasFrame, changed bool) {
	if q.ratchet.recordTick(q.queuedBytes) && q.queuedBytes >= 2*len(dst) && q.skipSilence(len(dst)) {
		q.trimmed++
		changed = true
	}
	if q.queuedBytes == 0 {
		return false, q.skipFinished() || changed
	}
	if q.queuedBytes < len(dst) && !q.pieces[len(q.pieces)-1].done && q.waitedTicks < partialFrameTicks {
		q.waitedTicks++
		return false, changed
	}
	q.waitedTicks, q.frameShares = 0, q.frameShares[:0]
	n := 0
	for n < len(dst) && q.headIndex < len(q.pieces) {
		p := q.pieces[q.headIndex]
		began, last := p.began, p.last
		took := p.readFrame(dst[n:])
		if took > 0 {
			q.frameShares = append(q.frameShares, share{p, took, q.now, began, last})
			changed = changed || p.began.IsZero()
			p.setPlayTimes(q.now)
		}
		n += took
		if p.unplayedBytes() > 0 || !p.done {
			break
		}
		q.headIndex++
		changed = true
	}
	q.queuedBytes -= n
	for i := n; i < len(dst); i++ {
		dst[i] = silence
	}
	return n > 0, q.skipFinished() || changed || q.queuedBytes == 0
}

// revertFrame restores the times of the pieces of the last frame, because this frame was not sent.
// The audio itself is not played again.
func (q *playout) revertFrame() {
	for _, of := range q.frameShares {
		of.piece.began, of.piece.last = of.previousBegan, of.previousLast
		of.piece.unsent += of.bytes
	}
	q.unsentShares, q.frameShares = append(q.unsentShares, q.frameShares...), q.frameShares[:0]
}

// skipFinished moves headIndex past the complete pieces that were played to their end.
func (q *playout) skipFinished() (changed bool) {
	for q.headIndex < len(q.pieces) && q.pieces[q.headIndex].done && q.pieces[q.headIndex].unplayedBytes() == 0 {
		q.headIndex++
		changed = true
	}
	return changed
}

// skipSilence drops the next frame if three conditions are met: it is silent, it lies within one
// chunk, and the person can interrupt its piece.
func (q *playout) skipSilence(size int) bool {
	if q.headIndex >= len(q.pieces) {
		return false
	}
	p := q.pieces[q.headIndex]
	if p.chunk >= len(p.chunks) || len(p.chunks[p.chunk])-p.offset < size || p.keep {
		return false
	}
	for _, sample := range p.chunks[p.chunk][p.offset : p.offset+size] {
		if magnitude(sample) > quietSample {
			return false
		}
	}
	if p.offset += size; p.offset == len(p.chunks[p.chunk]) {
		p.chunks[p.chunk] = nil
		p.chunk, p.offset = p.chunk+1, 0
	}
	p.played += size
	q.queuedBytes -= size
	return true
}

// cut is an item whose remaining audio was discarded, with the length of its played audio.
type cut struct {
	id            string
	played, total time.Duration
}

// stop empties the queue and returns its pieces. No more audio is sent after stop.
func (q *playout) stop() []*piece {
	pieces := q.pieces
	q.pieces, q.headIndex, q.queuedBytes, q.waitedTicks, q.stopped = nil, 0, 0, 0, true
	return pieces
}

// discardQueued discards the queued pieces, except pieces whose field keep is true.
func (q *playout) discardQueued() (cuts []cut) {
	kept := q.pieces[:q.headIndex]
	for _, p := range q.pieces[q.headIndex:] {
		if p.keep {
			kept = append(kept, p)
			continue
		}
		if p.unplayedBytes() > 0 || !p.done {
			cuts = append(cuts, cut{p.id, agent.Duration(p.played - p.unsent), agent.Duration(p.total)})
		} else {
			cuts = append(cuts, cut{p.id, agent.Duration(p.played - p.unsent), agent.Duration(p.played)})
		}
		q.queuedBytes -= p.unplayedBytes()
	}
	q.pieces = kept
	q.waitedTicks = 0
	return cuts
}

func (q *playout) removePlayed() (played []string) {
	for _, p := range q.pieces[:q.headIndex] {
		played = append(played, p.id)
	}
	q.pieces = append(q.pieces[:0], q.pieces[q.headIndex:]...)
	q.headIndex = 0
	return played
}

// ratchet detects that an agent sends audio in real time, but that the queue always delays its
// audio. This happens after a stall, when the missing audio arrives in a burst.
//
// Silent frames are then dropped until the queue contains at most one frame. ratchet observes the
// last four slots of half a second.
type ratchet struct {
	arrived int // bytes that arrived in the current slot
	slots   [slots]int
	least   [slots]int
	ticks   int // ticks of the current slot so far
	filled  int
	lowest  int
	late    bool // true if the audio is delayed in the queue
}

const (
	slots     = 4
	slotTicks = 25
	slotBytes = slotTicks * agent.FrameBytes
	// If an agent sends in real time and the queue never contains less than minSurplus, the audio
	// counts as delayed.
	minSurplus = 2 * agent.FrameBytes
)

// recordTick must be called every 20 ms with the length of the queue in bytes. It reports whether a
// silent frame may be dropped now.
func (r *ratchet) recordTick(depth int) bool {
	if r.ticks == 0 || depth < r.lowest {
		r.lowest = depth
	}
	if depth <= agent.FrameBytes { // the queue delays the audio no longer
		r.late = false
	}
	if r.ticks++; r.ticks < slotTicks {
		return r.late
	}
	copy(r.slots[:], r.slots[1:])
	copy(r.least[:], r.least[1:])
	r.slots[slots-1], r.least[slots-1] = r.arrived, r.lowest
	r.filled = min(r.filled+1, slots)
	r.ticks, r.arrived = 0, 0
	late, steady, sum := r.filled == slots, true, 0
	for i := range slots {
		// The bounds are wide, so that jitter is tolerated.
		steady = steady && r.slots[i] >= slotBytes*2/10 && r.slots[i] <= slotBytes*25/10
		late = late && r.least[i] >= minSurplus
		sum += r.slots[i]
	}
	steady = steady && sum >= slots*slotBytes*7/10 && sum <= slots*slotBytes*13/10
	r.late = steady && (late || r.late)
	return r.late
}
