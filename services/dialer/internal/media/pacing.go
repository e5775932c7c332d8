package media

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	frameTime = 20 * time.Millisecond
	// slots spread the streams over a frame's time: 500 streams are four bursts of 125, not one.
	slots    = 4
	slotTime = frameTime / slots
	// mostBehind is what is made up for after a stall, two frames a stream; a jitter buffer bears that. What is older is left out: timestamps go on
	// by the clock, and nothing of the source is lost.
	mostBehind = 2 * frameTime
)

// pacer says which turn it is. A turn is a slot of a frame's time; turns go on from the process's beginning.
type pacer struct {
	turn atomic.Int64 // the next; only the pacing loop moves it
}

func (p *pacer) due() time.Duration { return time.Duration(p.turn.Load()) * slotTime }

// catchUp leaves out whole frames of all streams when the loop is too far behind, and says how many.
func (p *pacer) catchUp(now time.Duration) (skipped uint64) {
	if behind := now - p.due(); behind > mostBehind+slotTime {
		skipped = uint64((behind - mostBehind) / frameTime)
		p.turn.Add(int64(skipped) * slots)
	}
	return skipped
}

const (
	// mostEarly and mostLate are how many turns a frame may be sent before and after its usual one: less than a frame, which any jitter buffer bears.
	mostEarly, mostLate = slots - 1, slots / 2
	// pausing is how many frames of silence make a pause.
	pausing = 3
	// watched is for how many frames in a row those of an agent that speaks in real time must have waited before they wait less.
	watched = 50
)

// moment is when a stream's next frame is sent: usually at the stream's own slot of the frame's time, but never long after what is to be said has come. Timestamps do
// not move with it.
type moment struct {
	slot int64
	due  atomic.Int64 // the turn

	mu    sync.Mutex // guards what follows, and writing due
	frame int64      // the next frame
	quiet int        // frames of silence
	least int64      // turns that what came had to wait, of the last so many
	came  int
}

// begin takes the first time of the slot from a turn on.
func (m *moment) begin(slot, turn int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slot, m.frame = slot, (turn-slot+slots-1)/slots
	m.due.Store(m.usual())
}

func (m *moment) usual() int64 { return m.frame*slots + m.slot }

// take is the frame whose turn it is, if it is one's.
func (m *moment) take(turn int64) (frame int64, ok bool) {
	if m.due.Load() > turn {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	due := m.due.Load()
	if behind := (turn - due) / slots; behind > 0 { // frames were left out, or the loop was asleep
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

// said learns whether a frame was silence. In a pause the stream goes back to its usual moment.
func (m *moment) said(silence bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !silence {
		m.quiet = 0
		return
	}
	m.quiet++
	m.least, m.came = slots, 0
	if early := m.usual() - m.due.Load(); m.quiet > pausing && early > 0 {
		m.due.Add(1)
	} else if m.quiet > pausing && early < 0 {
		m.due.Add(-1)
	}
}

// soon is told when something to say has come and nothing was waiting. Behind a pause it goes out at the next turn. What came just too late moves the stream a turn back,
// so that the next does not. Of an agent that speaks in real time, the frames of the last second decide: they need not wait longer than the latest of them and a turn.
func (m *moment) soon(turn int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	due := m.due.Load()
	waits := due - turn
	switch {
	case m.quiet >= pausing:
	case m.quiet > 0:
		if m.usual()-due > -mostLate {
			m.due.Store(due + 1)
		}
		return
	default:
		m.least = min(m.least, waits)
		if m.came++; m.came < watched {
			return
		}
		waits, m.least, m.came = m.least-1, slots, 0
	}
	if earlier := max(due-waits, m.usual()-mostEarly); earlier < due {
		m.due.Store(earlier)
	}
}

// pace takes all turns that are due, and says how long nothing is.
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

// bounds are those of the histogram of lateness.
var bounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 300 * time.Microsecond, 500 * time.Microsecond, 700 * time.Microsecond,
	1 * time.Millisecond, 1500 * time.Microsecond, 2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond, 5 * time.Millisecond,
	7 * time.Millisecond, 10 * time.Millisecond, 15 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
}

// lateness counts how much later than due packets were handed to the system.
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
