package media

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	frameTime = 20 * time.Millisecond
	// slots is the number of parts into which the 20 ms of a frame are divided. The streams are
	// spread over these slots, so 500 streams are sent in four bursts of 125.
	slots    = 4
	slotTime = frameTime / slots
	// maxBehind limits the delay that the loop makes up for after a stall: two frames per stream,
	// which a jitter buffer tolerates. Older frames are skipped. Timestamps follow the clock, and
	// no audio of the source is lost.
	maxBehind = 2 * frameTime
)

// pacer counts turns. A turn is one slot of a frame and lasts 5 ms. The turns are numbered from the
// start of the process.
type pacer struct {
	turn atomic.Int64 // number of the next turn; only the pacing loop changes it
}

func (p *pacer) due() time.Duration { return time.Duration(p.turn.Load()) * slotTime }

// catchUp skips whole frames of all streams if the loop is too late. It returns the number of
// skipped frames.
func (p *pacer) catchUp(now time.Duration) (skipped uint64) {
	if behind := now - p.due(); behind > maxBehind+slotTime {
		skipped = uint64((behind - maxBehind) / frameTime)
		p.turn.Add(int64(skipped) * slots)
	}
	return skipped
}

const (
	// maxEarly and maxLate limit how many turns of 5 ms a frame may be sent before and after its
	// usual turn. Both are less than a frame, which every jitter buffer tolerates.
	maxEarly, maxLate = slots - 1, slots / 2
	// pauseFrames is the number of silent frames that form a pause.
	pauseFrames = 3
	// realTimeFrames is the number of consecutive frames of an agent in real time that must have
	// waited before the stream is shifted.
	realTimeFrames = 50
)

// moment determines the turn in which a stream's next frame is sent. Usually this is the turn of
// the stream's own slot. It can be shifted so that audio does not wait long. A shift does not
// change the timestamps.
type moment struct {
	slot int64
	due  atomic.Int64 // turn of the next frame

	mu    sync.Mutex // protects the fields below, and writes of due
	frame int64      // number of the next frame
	quiet int        // number of consecutive frames of silence
	least int64      // shortest wait of the last frames, in turns
	came  int
}

// begin schedules the first frame at the first turn of the slot that is not before the given turn.
func (m *moment) begin(slot, turn int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slot, m.frame = slot, (turn-slot+slots-1)/slots
	m.due.Store(m.usual())
}

func (m *moment) usual() int64 { return m.frame*slots + m.slot }

// take returns the number of the frame for the turn. ok is false if the stream does not send in
// this turn.
func (m *moment) take(turn int64) (frame int64, ok bool) {
	if m.due.Load() > turn {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	due := m.due.Load()
	if behind := (turn - due) / slots; behind > 0 { // frames were skipped, or the loop slept
		m.frame += behind
		if due += behind * slots; due < turn {
			m.frame++
			m.due.Store(due + slots)
			return 0, false
		}
	}
	frame = m.frame
	m.frame++
	m.due.Store(due + slots)
	return frame, true
}

// recordSent records whether the sent frame was silence. In a pause the stream returns to its usual
// turn, by one turn per frame.
func (m *moment) recordSent(silence bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !silence {
		m.quiet = 0
		return
	}
	m.quiet++
	m.least, m.came = slots, 0
	if early := m.usual() - m.due.Load(); m.quiet > pauseFrames && early > 0 {
		m.due.Add(1)
	} else if m.quiet > pauseFrames && early < 0 {
		m.due.Add(-1)
	}
}

// soon is called when audio was added to an empty queue. After a pause, this audio is sent at the
// next turn. If audio arrives just too late for its turn, the stream is moved to a turn later, so
// that the next frame is in time. For an agent in real time, the shortest wait of the last second
// decides. The frame with this wait then waits for at most one turn.
func (m *moment) soon(turn int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	due := m.due.Load()
	waits := due - turn
	switch {
	case m.quiet >= pauseFrames:
	case m.quiet > 0:
		if m.usual()-due > -maxLate {
			m.due.Store(due + 1)
		}
		return
	default:
		m.least = min(m.least, waits)
		if m.came++; m.came < realTimeFrames {
			return
		}
		waits, m.least, m.came = m.least-1, slots, 0
	}
	if earlier := max(due-waits, m.usual()-maxEarly); earlier < due {
		m.due.Store(earlier)
	}
}

// pace sends the frames of all due turns, and returns the time until the next turn.
func (s *Streams) pace(now time.Duration) time.Duration {
	if n := s.pacer.catchUp(now); n > 0 {
		s.skipped.Add(n)
	}
	for ; s.pacer.due() <= now; s.pacer.turn.Add(1) {
		due, turn := s.pacer.due(), s.pacer.turn.Load()
		s.pacing.Lock()
		for _, stream := range s.paced {
			frame, ok := stream.moment.take(turn)
			if !ok {
				continue
			}
			now := s.now()
			if stream.say(frame, now-due) {
				s.late.add(now - due)
			}
			stream.elapse(now)
		}
		s.pacing.Unlock()
	}
	return s.pacer.due() - s.now()
}

// bounds are the upper bounds of the buckets of the histogram of lateness.
var bounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 300 * time.Microsecond, 500 * time.Microsecond, 700 * time.Microsecond,
	1 * time.Millisecond, 1500 * time.Microsecond, 2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond, 5 * time.Millisecond,
	7 * time.Millisecond, 10 * time.Millisecond, 15 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
}

// lateness is a histogram of the delay between the due time of packets and the time at which they
// were sent.
type lateness struct {
	counts [len(bounds) + 1]atomic.Uint64
	sum    atomic.Int64
}

func (l *lateness) add(late time.Duration) {
	i := 0
	for i < len(bounds) && late > bounds[i] {
		i++
	}
	l.counts[i].Add(1)
	l.sum.Add(int64(late))
}
