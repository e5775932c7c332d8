package bridge

import (
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

const (
	// maxQueued bounds what an agent may have said ahead: five minutes. What is beyond is dropped and counted.
	maxQueued = 5 * 60 * agent.BytesPerSecond
	// patience is how many ticks the beginning of a frame waits for its rest before it goes out with silence behind it.
	patience = 2
	// silence is a sample of none in mu-law.
	silence = 0xff
)

// piece is one item of the agent's in the queue.
type piece struct {
	id     string
	chunks [][]byte
	// chunk and offset are the position that is played next. played and total count bytes; recorded are
	// the played bytes that the transcript has counted.
	chunk, offset           int
	played, total, recorded int
	unsent                  int // bytes of played whose frames were not sent
	keep, done              bool
	// began and last are the times of the first and of the last frame; zero: nothing was played yet.
	began, last time.Time
}

func (p *piece) left() int { return p.total - p.played }

// share is the part of a frame that came from one piece, and the times of the piece before that frame.
type share struct {
	piece       *piece
	bytes       int
	at          time.Time
	began, last time.Time
}

// play records that a part of the piece is sent now.
func (p *piece) play(now time.Time) {
	if p.began.IsZero() {
		p.began = now
	}
	p.last = now
}

// take moves up to len(dst) bytes out; it allocates nothing.
func (p *piece) take(dst []byte) (n int) {
	for n < len(dst) && p.chunk < len(p.chunks) {
		moved := copy(dst[n:], p.chunks[p.chunk][p.offset:])
		n += moved
		if p.offset += moved; p.offset == len(p.chunks[p.chunk]) {
			p.chunks[p.chunk] = nil
			p.chunk, p.offset = p.chunk+1, 0
		}
	}
	p.played += n
	return n
}

// playout is the queue of what the agent says, in pieces of any size, taken out in frames of 20 ms. It is not safe for concurrent use.
type playout struct {
	pieces []*piece
	// head is the first that is not played to its end; those before it wait to be collected.
	head   int
	depth  int // bytes
	halted bool
	waited int // ticks that a part of a frame has waited
	// now is the time of the frame that is taken.
	now time.Time
	// frame are the shares of the frame that was taken last, and lost those of frames that were not sent and that
	// the transcript still counts.
	frame, lost []share
	ratchet     ratchet
	// dropped counts bytes that had no room, trimmed frames of silence that a late agent was shortened by.
	dropped, trimmed int64
}

// add queues audio. It goes behind what the item has, or begins it.
func (q *playout) add(id string, audio []byte, keep bool) {
	if q.halted {
		return
	}
	if q.depth+len(audio) > maxQueued {
		q.dropped += int64(len(audio))
		return
	}
	p := q.find(id)
	if p == nil || p.done {
		p = &piece{id: id, keep: keep}
		q.pieces = append(q.pieces, p)
	}
	p.chunks = append(p.chunks, audio)
	p.total += len(audio)
	q.depth += len(audio)
	q.ratchet.arrived += len(audio)
}

// finish says that no more comes of an item; one without audio takes its place in the order.
func (q *playout) finish(id string) {
	p := q.find(id)
	if p == nil {
		p = &piece{id: id}
		q.pieces = append(q.pieces, p)
	}
	p.done = true
}

// mark puts an item without audio behind everything, which no barge-in takes away.
func (q *playout) mark(id string) {
	q.pieces = append(q.pieces, &piece{id: id, keep: true, done: true})
}

func (q *playout) find(id string) *piece {
	for i := len(q.pieces) - 1; i >= q.head; i-- {
		if q.pieces[i].id == id {
			return q.pieces[i]
		}
	}
	return nil
}

// next fills dst with the next frame; false: there is none. moved says that an item ended, began, or the queue ran dry.
func (q *playout) next(dst []byte) (spoke, moved bool) {
	if q.ratchet.tick(q.depth) && q.depth >= 2*len(dst) && q.skipSilence(len(dst)) {
		q.trimmed++
		moved = true
	}
	if q.depth == 0 {
		return false, q.settle() || moved
	}
	if q.depth < len(dst) && !q.pieces[len(q.pieces)-1].done && q.waited < patience {
		q.waited++
		return false, moved
	}
	q.waited, q.frame = 0, q.frame[:0]
	n := 0
	for n < len(dst) && q.head < len(q.pieces) {
		p := q.pieces[q.head]
		began, last := p.began, p.last
		took := p.take(dst[n:])
		if took > 0 {
			q.frame = append(q.frame, share{p, took, q.now, began, last})
			moved = moved || p.began.IsZero()
			p.play(q.now)
		}
		n += took
		if p.left() > 0 || !p.done {
			break
		}
		q.head++
		moved = true
	}
	q.depth -= n
	for i := n; i < len(dst); i++ {
		dst[i] = silence
	}
	return n > 0, q.settle() || moved || q.depth == 0
}

// unsent takes the frame that was taken last back from the times of its pieces. It keeps its place in the audio.
func (q *playout) unsent() {
	for _, of := range q.frame {
		of.piece.began, of.piece.last = of.began, of.last
		of.piece.unsent += of.bytes
	}
	q.lost, q.frame = append(q.lost, q.frame...), q.frame[:0]
}

// settle goes past pieces at the head that are over.
func (q *playout) settle() (moved bool) {
	for q.head < len(q.pieces) && q.pieces[q.head].done && q.pieces[q.head].left() == 0 {
		q.head++
		moved = true
	}
	return moved
}

// skipSilence throws the next frame away if it is silent and whole in one chunk.
func (q *playout) skipSilence(size int) bool {
	if q.head >= len(q.pieces) {
		return false
	}
	p := q.pieces[q.head]
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
	q.depth -= size
	return true
}

// cut is an item of which the rest was thrown away.
type cut struct {
	id            string
	played, total time.Duration
}

// halt discards everything and returns the pieces that were in the queue. Nothing is sent afterwards.
func (q *playout) halt() []*piece {
	pieces := q.pieces
	q.pieces, q.head, q.depth, q.waited, q.halted = nil, 0, 0, 0, true
	return pieces
}

// flush throws away what is not to be kept, and tells how far each item had got that now never ends.
func (q *playout) flush() (cuts []cut) {
	kept := q.pieces[:q.head]
	for _, p := range q.pieces[q.head:] {
		if p.keep {
			kept = append(kept, p)
			continue
		}
		if p.left() > 0 || !p.done {
			cuts = append(cuts, cut{p.id, agent.Duration(p.played - p.unsent), agent.Duration(p.total)})
		} else {
			cuts = append(cuts, cut{p.id, agent.Duration(p.played - p.unsent), agent.Duration(p.played)})
		}
		q.depth -= p.left()
	}
	q.pieces = kept
	q.waited = 0
	return cuts
}

// collect takes out the items that were played to their end.
func (q *playout) collect() (played []string) {
	for _, p := range q.pieces[:q.head] {
		played = append(played, p.id)
	}
	q.pieces = append(q.pieces[:0], q.pieces[q.head:]...)
	q.head = 0
	return played
}

// ratchet finds out an agent that speaks in real time and has fallen behind: an echo or a gateway, which a stall has made late for good. It looks at two seconds in
// four slots. An agent that bursts ahead, as models do, fills a slot with far more audio than it lasts, and is left alone.
type ratchet struct {
	arrived int // bytes in this slot
	slots   [slots]int
	least   [slots]int
	n       int // ticks in this slot
	filled  int
	lowest  int
	late    bool
}

const (
	slots     = 4
	slotTicks = 25
	slotBytes = slotTicks * agent.FrameBytes
	// surplus is what must not wait for good: a frame behind the one that is played next.
	surplus = 2 * agent.FrameBytes
)

// tick is each 20 ms, with the depth of the queue. It answers whether silence may be trimmed.
func (r *ratchet) tick(depth int) bool {
	if r.n == 0 || depth < r.lowest {
		r.lowest = depth
	}
	if depth <= agent.FrameBytes { // what was caught up with is caught up with
		r.late = false
	}
	if r.n++; r.n < slotTicks {
		return r.late
	}
	copy(r.slots[:], r.slots[1:])
	copy(r.least[:], r.least[1:])
	r.slots[slots-1], r.least[slots-1] = r.arrived, r.lowest
	r.filled = min(r.filled+1, slots)
	r.n, r.arrived = 0, 0
	late, steady, sum := r.filled == slots, true, 0
	for i := range slots {
		steady = steady && r.slots[i] >= slotBytes*2/10 && r.slots[i] <= slotBytes*25/10 // a busy machine stumbles
		late = late && r.least[i] >= surplus
		sum += r.slots[i]
	}
	steady = steady && sum >= slots*slotBytes*7/10 && sum <= slots*slotBytes*13/10
	r.late = steady && (late || r.late)
	return r.late
}
