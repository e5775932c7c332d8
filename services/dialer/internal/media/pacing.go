package media

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	frameTime = 20 * time.Millisecond
	// slots is the number of slots of 5 ms in a frame of 20 ms. Each stream has one slot, so 500
	// streams are sent in four bursts of 125.
	slots    = 4
	slotTime = frameTime / slots
	// After a stall, the loop catches up by at most maxBehind: it sends two late frames per stream
	// and skips older frames. Timestamps follow the clock, and no audio of the source is lost.
	maxBehind = 2 * frameTime
)

// pacer counts turns. A turn is one step of the pacing loop and lasts 5 ms. In each turn, the loop
// sends the frames that are due, normally those of the streams of one slot.
type pacer struct {
	turn atomic.Int64 // number of the next turn; only the pacing loop changes it
}

func (p *pacer) due() time.Duration { return time.Duration(p.turn.Load()) * slotTime }

// catchUp makes all streams skip whole frames if the loop is too late.
func (p *pacer) catchUp(now time.Duration) (skipped uint64) {
	if behind := now - p.due(); behind > maxBehind+slotTime {
		skipped = uint64((behind - maxBehind) / frameTime)
		p.turn.Add(int64(skipped) * slots)
	}
	return skipped
}

const (
	// maxEarly and maxLate limit how many turns before and after a stream's usual turn a frame may
	// be sent. Both are shorter than a frame, which every jitter buffer tolerates.
	maxEarly, maxLate = slots - 1, slots / 2
	// pauseFrames is the number of consecutive silent frames that count as a pause.
	pauseFrames = 3
	// If an agent sends in real time, each of its frames waits for the stream's turn.
	// realTimeFrames is the number of consecutive waits that are measured before the stream is
	// moved to an earlier turn.
	realTimeFrames = 50
)

// sendSchedule determines the turn in which a stream's next frame is sent. Usually this is the turn
// of the stream's own slot. The turn can be moved without a change of the timestamps, so that audio
// does not wait long.
type sendSchedule struct {
	slot    int64
	dueTurn atomic.Int64 // turn of the next frame

	mu             sync.Mutex // protects the fields below; a write of dueTurn needs the lock too
	nextFrame      int64      // number of the next frame
	silentFrames   int        // number of consecutive frames of silence
	shortestWait   int64      // shortest wait of the measured frames, in turns
	measuredFrames int
}

// start makes the first frame due in the first turn of the stream's slot that is not before the
// given turn.
func (m *sendSchedule) start(slot, turn int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slot, m.nextFrame = slot, (turn-slot+slots-1)/slots
	m.dueTurn.Store(m.usualTurn())
}

func (m *sendSchedule) usualTurn() int64 { return m.nextFrame*slots + m.slot }

// takeFrame returns the number of the frame to send. ok is false if the stream sends nothing in
// this turn.
func (m *sendSchedule) takeFrame(turn int64) (frame int64, ok bool) {
	if m.dueTurn.Load() > turn {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	due := m.dueTurn.Load()
	if behind := (turn - due) / slots; behind > 0 { // frames were skipped, or the loop slept
		m.nextFrame += behind
		if due += behind * slots; due < turn {
			m.nextFrame++
			m.dueTurn.Store(due + slots)
			return 0, false
		}
	}
	frame = m.nextFrame
	m.nextFrame++
	m.dueTurn.Store(due + slots)
	return frame, true
}

// recordSent moves the stream back to its usual turn during a pause, by one turn per frame.
func (m *sendSchedule) recordSent(silence bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !silence {
		m.silentFrames = 0
		return
	}
	m.silentFrames++
	m.shortestWait, m.measuredFrames = slots, 0
	if early := m.usualTurn() - m.dueTurn.Load(); m.silentFrames > pauseFrames && early > 0 {
		m.dueTurn.Add(1)
	} else if m.silentFrames > pauseFrames && early < 0 {
		m.dueTurn.Add(-1)
	}
}

// speakSoon is called when audio was added to an empty queue. It can move the stream to another
// turn, so that the audio does not wait long.
func (m *sendSchedule) speakSoon(turn int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	due := m.dueTurn.Load()
	waits := due - turn
	switch {
	case m.silentFrames >= pauseFrames: // after a pause, the audio is sent in the next turn
	case m.silentFrames > 0:
		// The audio arrived just too late and silence was sent in its place, so the stream is moved
		// one turn later.
		if m.usualTurn()-due > -maxLate {
			m.dueTurn.Store(due + 1)
		}
		return
	default:
		// The agent sends in real time. After realTimeFrames waits, the stream is moved earlier, so
		// that the frame with the shortest wait then waits for one turn.
		m.shortestWait = min(m.shortestWait, waits)
		if m.measuredFrames++; m.measuredFrames < realTimeFrames {
			return
		}
		waits, m.shortestWait, m.measuredFrames = m.shortestWait-1, slots, 0
	}
	if earlier := max(due-waits, m.usualTurn()-maxEarly); earlier < due {
		m.dueTurn.Store(earlier)
	}
}

// sendDueFrames sends the frames of all due turns. It returns the time until the next turn.
func (s *Streams) sendDueFrames(now time.Duration) time.Duration {
	if n := s.pacer.catchUp(now); n > 0 {
		s.skipped.Add(n)
	}
	for ; s.pacer.due() <= now; s.pacer.turn.Add(1) {
		due, turn := s.pacer.due(), s.pacer.turn.Load()
		s.pacing.Lock()
		for _, stream := range s.paced {
			frame, ok := stream.schedule.takeFrame(turn)
			if !ok {
				continue
			}
			now := s.now()
			if stream.sendFrame(frame, now-due) {
				s.late.add(now - due)
			}
			stream.fillGaps(now)
		}
		s.pacing.Unlock()
	}
	return s.pacer.due() - s.now()
}

// latenessBounds are the upper bounds of the buckets of the histogram.
var latenessBounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 300 * time.Microsecond, 500 * time.Microsecond, 700 * time.Microsecond,
	1 * time.Millisecond, 1500 * time.Microsecond, 2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond, 5 * time.Millisecond,
	7 * time.Millisecond, 10 * time.Millisecond, 15 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
}

// lateness is a histogram of the time between the due time of a packet and the time at which it was
// sent.
type lateness struct {
	counts [len(latenessBounds) + 1]atomic.Uint64
	sum    atomic.Int64
}

func (l *lateness) add(late time.Duration) {
	i := 0
	for i < len(latenessBounds) && late > latenessBounds[i] {
		i++
	}
	l.counts[i].Add(1)
	l.sum.Add(int64(late))
}
