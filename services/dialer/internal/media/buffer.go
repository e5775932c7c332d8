// Package jitter turns the packets of one RTP stream into 20 ms frames in order, 50 a second, whatever the network did to them. Pure: packets and
// the time go in, frames come out.
//
// Nothing is delayed that is in order: our listeners are an agent and a recorder, which do not mind when a frame comes, only that it comes. What is
// missing is waited for as long as Buffer is patient, 60 to 120 ms by what the network has shown, and then heard as silence. So is a pause in
// which the far end sends nothing: an agent that hears nothing at all never notices that somebody has stopped talking.

package media

import (
	"time"
)

// BufferedFrame is 20 ms of µ-law in bytes, and in units of timestamp.
const BufferedFrame = 160

const (
	bufferFrameTime = 20 * time.Millisecond
	// leastPatience bears a packet that two others overtook; mostPatience is where a conversation suffers more from waiting than from a gap.
	leastPatience, mostPatience = 60 * time.Millisecond, 120 * time.Millisecond
	// calm is how long nothing must be late before patience goes down by a frame.
	calm = 5 * time.Second
	// frames is the ring: 640 ms.
	frames = 32
	// granules of a frame are 1 ms each: what came of it.
	granules = 20
	whole    = 1<<granules - 1
	// mostFill ends the making up for a process that stood still: 500 ms.
	mostFill = 25
	// longestPause is how far silence may be behind the far end's clock: patience and some. More is another clock.
	longestPause = 10 * BufferedFrame
	// mostAhead is how far frames may be ahead of the time: a burst after a stall is, a flood is cut off.
	mostAhead = time.Second
	// shifted is how long everything must be late before it is the network that has changed.
	shifted = 100 * time.Millisecond
)

const silence = 0xFF

// JitterStats counts since the stream began.
type JitterStats struct {
	// Received without duplicates; Lost never came; Late came, after silence had taken its place; Filled are frames of silence, at least in part;
	// Excess are frames that came faster than anybody speaks, and were not heard.
	Received, Lost, Late, Duplicates, Filled, Excess, Restarts uint64
	// Jitter of the arrivals (RFC 3550 A.8).
	Jitter time.Duration
}

// JitterBuffer is one stream's. Not safe for use by several goroutines.
type JitterBuffer struct {
	hear func(frame []byte)

	sequence sequenceNumber
	samples  [frames * BufferedFrame]byte
	have     [frames]uint32

	begun bool
	// head is the position of the next frame to hear, top that behind the newest sample; both in samples since the beginning. stamp is head's timestamp.
	head, top int64
	stamp     uint32
	// due is when the frame at head is given up on.
	due time.Duration

	patience time.Duration
	lateAt   time.Duration // when something was late last
	lateFrom time.Duration // since when everything is; 0: it is not

	transit int64 // of the packet before, in units of timestamp
	jitter  int64 // 16 times the jitter
	late    uint64
	filled  uint64
	limit   FrameLimit
	excess  uint64
	restart uint64
	twice   uint64
}

// NewJitterBuffer hears each frame in order; the slice is the buffer's own and good for the call alone.
func NewJitterBuffer(hear func(frame []byte)) *JitterBuffer {
	b := &JitterBuffer{hear: hear, patience: leastPatience}
	for i := range b.samples {
		b.samples[i] = silence
	}
	return b
}

// Arrival is what a packet's number says; Audio wants it back.
type Arrival struct{ verdict arrivalVerdict }

// Count takes the number of any packet of the stream, audio or not. ok is false for one that is not to be looked at: a duplicate, or one that is far from all others.
func (b *JitterBuffer) Count(number uint16) (a Arrival, ok bool) {
	a.verdict = b.sequence.see(number)
	switch a.verdict {
	case duplicate:
		b.twice++
		return a, false
	case wild:
		return a, false
	case anew:
		b.Restart()
	}
	return a, true
}

// Restart takes the next audio as the first: another timestamp begins.
func (b *JitterBuffer) Restart() {
	if b.begun {
		b.restart++
	}
	b.clear()
	b.begun, b.lateFrom = false, 0
}

// NewSource is Restart for a source that counts its packets anew, too.
func (b *JitterBuffer) NewSource() {
	b.Restart()
	b.sequence.begun = false
}

// Audio takes the µ-law of a packet that was counted.
func (b *JitterBuffer) Audio(a Arrival, timestamp uint32, audio []byte, now time.Duration) {
	if len(audio) == 0 || len(audio) > (frames-2)*BufferedFrame {
		return
	}
	b.measure(timestamp, now)
	if !b.begun {
		b.begin(timestamp, now)
	}
	off := int64(int32(timestamp - b.stamp))
	if off+int64(len(audio)) > (frames-1)*BufferedFrame || off < -frames*BufferedFrame {
		b.jump(timestamp)
		off = 0
	}
	if off+int64(len(audio)) <= 0 {
		b.late++
		if !b.tooLate(-off, now) {
			return
		}
		b.jump(timestamp)
		off = 0
	}
	b.lateFrom = 0
	if off < 0 {
		audio, off = audio[-off:], 0
	}
	if a.verdict == next && b.head+off > b.top { // a pause: nothing was sent there, so nothing is waited for
		if b.head+off > b.top+longestPause {
			b.jump(timestamp)
			off = 0
		} else {
			b.mark(b.top, b.head+off)
		}
	}
	b.put(b.head+off, audio)
	b.patient(now, len(audio))
	b.drain(now, len(audio))
}

// Elapse gives up on what is overdue. It is called about each 20 ms; once the first packet came, frames go on to be heard without any.
func (b *JitterBuffer) Elapse(now time.Duration) {
	for range mostFill {
		if !b.begun || now < b.due {
			return
		}
		b.filled++
		b.say(now)
		b.due += bufferFrameTime
		b.drain(now, 0)
	}
	b.due = max(b.due, now)
}

// Stats is how it went so far.
func (b *JitterBuffer) Stats() JitterStats {
	return JitterStats{
		Received: b.sequence.received, Lost: b.sequence.lost(), Late: b.late, Duplicates: b.twice, Filled: b.filled, Excess: b.excess, Restarts: b.restart,
		Jitter: time.Duration(b.jitter/16) * time.Second / 8000,
	}
}

func (b *JitterBuffer) begin(timestamp uint32, now time.Duration) {
	b.begun, b.stamp = true, timestamp
	b.head, b.top = 0, 0
	b.due = now + bufferFrameTime + b.patience
}

// jump goes on at a timestamp that has nothing to do with the ones before.
func (b *JitterBuffer) jump(timestamp uint32) {
	b.restart++
	b.clear()
	b.stamp, b.lateFrom = timestamp, 0
}

func (b *JitterBuffer) clear() {
	for i := range b.samples {
		b.samples[i] = silence
	}
	clear(b.have[:])
	b.head, b.top = 0, 0
}

// tooLate learns from a packet that came by so many samples too late, and says whether everything does by now, without end: the way has become longer.
func (b *JitterBuffer) tooLate(by int64, now time.Duration) bool {
	b.patience = min(b.patience+time.Duration(by)*time.Second/8000, mostPatience)
	b.lateAt = now
	if b.lateFrom == 0 {
		b.lateFrom = max(now, 1)
	}
	return now-b.lateFrom >= shifted
}

// patient makes patience smaller after a calm time, but never smaller than the packets are long.
func (b *JitterBuffer) patient(now time.Duration, length int) {
	if now-b.lateAt < calm || b.patience == leastPatience {
		return
	}
	b.lateAt = now
	b.patience = max(b.patience-bufferFrameTime, leastPatience, time.Duration(length)*time.Second/8000)
}

// put writes samples, over silence or over the same.
func (b *JitterBuffer) put(at int64, audio []byte) {
	b.mark(at, at+int64(len(audio)))
	n := copy(b.samples[at%int64(len(b.samples)):], audio)
	copy(b.samples[:], audio[n:])
}

// mark takes [from, to) as there.
func (b *JitterBuffer) mark(from, to int64) {
	for at := from; at < to; {
		inFrame := at % BufferedFrame
		end := min(to, at-inFrame+BufferedFrame)
		first, last := inFrame/8, (inFrame+end-at+7)/8
		b.have[at/BufferedFrame%frames] |= (1<<last - 1) &^ (1<<first - 1)
		at = end
	}
	b.top = max(b.top, to)
}

// drain hears what is whole; length is that of the packet that made it so.
func (b *JitterBuffer) drain(now time.Duration, length int) {
	said := false
	for b.have[b.head/BufferedFrame%frames] == whole {
		b.say(now)
		said = true
	}
	if said {
		b.due = now + b.patience + max(bufferFrameTime, time.Duration(length)*time.Second/8000)
	}
}

func (b *JitterBuffer) say(now time.Duration) {
	at := b.head % int64(len(b.samples))
	frame := b.samples[at : at+BufferedFrame]
	if b.limit.Pass(bufferFrameTime, mostAhead, now) {
		b.hear(frame)
	} else {
		b.excess++
	}
	for i := range frame {
		frame[i] = silence
	}
	b.have[b.head/BufferedFrame%frames] = 0
	b.head += BufferedFrame
	b.stamp += BufferedFrame
	b.top = max(b.top, b.head)
}

// measure is RFC 3550 A.8.
func (b *JitterBuffer) measure(timestamp uint32, now time.Duration) {
	transit := int64(int32(uint32(now*8000/time.Second) - timestamp))
	if b.begun {
		off := transit - b.transit
		if off < 0 {
			off = -off
		}
		if off < 8000 { // a timestamp that jumps is no jitter
			b.jitter += off - (b.jitter+8)/16
		}
	}
	b.transit = transit
}
