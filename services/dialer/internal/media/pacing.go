package media

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	frameTime = 20 * time.Millisecond
	// slots is the number of slots of 5 ms in a frame of 20 ms. Each stream has a slot. So 500 streams
	// are sent in four bursts of 125 packets.
	slots    = 4
	slotTime = frameTime / slots
	// maxBehind limits the late frames that are sent after a stall to two per stream. Older frames
	// are skipped. No audio is lost, because the loop reads no audio for skipped frames.
	maxBehind = 2 * frameTime
)

// pacer counts turns. A turn is one step of the pacing loop, and lasts 5 ms. In each turn, the loop
// sends the frames that are due.
type pacer struct {
	turn atomic.Int64 // number of the next turn; only the pacing loop changes it
}

func (p *pacer) due() time.Duration { return time.Duration(p.turn.Load()) * slotTime }

// catchUp skips whole frames of all streams if the loop is too late. It returns how many frames per
// stream it skipped.
func (p *pacer) catchUp(now time.Duration) (skipped uint64) {
	if behind := now - p.due(); behind > maxBehind+slotTime {
		skipped = uint64((behind - maxBehind) / frameTime)
		p.turn.Add(int64(skipped) * slots)
	}
	return skipped
}

const (
	// A frame may be sent at most maxEarly turns before, and maxLate turns after, the usual turn of
	// its stream. Both limits are shorter than a frame, so every jitter buffer tolerates the
	// deviation.
	maxEarly, maxLate = slots - 1, slots / 2
	// pauseFrames is the minimum number of consecutive silent frames that count as a pause.
	pauseFrames = 3
	// If an agent sends in real time, each frame waits for the turn of its stream. realTimeFrames is
	// the number of consecutive frames whose wait is measured before the stream is moved to an earlier
	// turn.
	realTimeFrames = 50
)

// sendSchedule determines in which turn the next frame of a stream is sent. Usually this is the
// turn of the stream's slot. To shorten the wait of new audio, the stream can be moved to another
// turn, which does not change the timestamps.
type sendSchedule struct {
	slot    int64
	dueTurn atomic.Int64 // turn of the next frame

	mu             sync.Mutex // protects the fields below; also locked to write dueTurn
	nextFrame      int64      // number of the next frame
	silentFrames   int        // number of consecutive frames of silence
	shortestWait   int64      // shortest wait of the measured frames, in turns
	measuredFrames int
}

// start schedules the first frame. It is due in the first turn of the stream's slot that is not
// before the given turn.
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
	if behind := (turn - due) / slots; behind > 0 { // frames were skipped, or the loop was asleep
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

// recordSent records whether the sent frame was silence. During a pause, it moves the stream back
// to its usual turn, by one turn per frame.
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
// turn, so that this audio does not wait long.
func (m *sendSchedule) speakSoon(turn int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	due := m.dueTurn.Load()
	waits := due - turn
	switch {
	case m.silentFrames >= pauseFrames: // send the audio in the next turn
	case m.silentFrames > 0:
		// The audio arrived just too late, and silence was sent instead. So the stream is moved to the
		// next turn.
		if m.usualTurn()-due > -maxLate {
			m.dueTurn.Store(due + 1)
		}
		return
	default:
		// The agent sends in real time. After realTimeFrames waits, the stream is moved to an earlier
		// turn. The frame with the shortest wait will then wait for one turn.
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

// sendDueFrames carries out all turns that are due. It returns the time until the next turn.
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

// lateness is a histogram of how late packets were sent after their due time.
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
