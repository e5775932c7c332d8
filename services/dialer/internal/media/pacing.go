package media

import (
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

// pacer says which slot's turn it is. A turn is a slot of a frame's time; turns go on from the process's beginning.
type pacer struct {
	turn int64
}

func (p *pacer) due() time.Duration { return time.Duration(p.turn) * slotTime }

// catchUp leaves out whole frames of all streams when the loop is too far behind, and says how many.
func (p *pacer) catchUp(now time.Duration) (skipped uint64) {
	if behind := now - p.due(); behind > mostBehind+slotTime {
		skipped = uint64((behind - mostBehind) / frameTime)
		p.turn += int64(skipped) * slots
	}
	return skipped
}

// pace takes all turns that are due, and says how long nothing is.
func (s *Streams) pace(now time.Duration) time.Duration {
	if n := s.pacer.catchUp(now); n > 0 {
		s.skipped.Add(n)
	}
	for ; s.pacer.due() <= now; s.pacer.turn++ {
		due, frame := s.pacer.due(), s.pacer.turn/slots
		slot := &s.slots[s.pacer.turn%slots]
		slot.mu.Lock()
		for _, stream := range slot.streams {
			now := s.now()
			if stream.say(frame, now-due) {
				s.late.add(now - due)
			}
			stream.elapse(now)
		}
		slot.mu.Unlock()
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
