package media

import (
	"time"
)

// BufferedFrame is the number of bytes of 20 ms of mu-law. It is also the length of 20 ms in
// timestamp units.
const BufferedFrame = 160

const (
	bufferFrameTime = 20 * time.Millisecond
	// With minWait, a packet is on time even if it arrives after the next two packets. A wait longer
	// than maxWait would disturb a conversation more than a gap does.
	minWait, maxWait = 60 * time.Millisecond, 120 * time.Millisecond
	// calmTime is the time without late packets after which the wait becomes one frame shorter.
	calmTime = 5 * time.Second
	// ringFrames is the size of the ring buffer in frames. 32 frames are 640 ms.
	ringFrames = 32
	// A frame consists of 20 granules of 1 ms. For each granule, the buffer stores whether its
	// samples have arrived.
	granules    = 20
	allGranules = 1<<granules - 1
	// maxFill is the maximum number of silent frames that one call of Elapse adds after a stall of the
	// process. 25 frames are 500 ms.
	maxFill = 25
	// If the sender's timestamp jumps by at most longestPause, the sender has paused. After a longer
	// jump, the sender's timestamps are a new sequence.
	longestPause = 10 * BufferedFrame
	// maxAhead is how far the frames can be ahead of real time when many packets arrive after a stall
	// of the network. Frames beyond this limit are dropped.
	maxAhead = time.Second
	// If every packet is late during shiftTime, the buffer assumes that the network delay has grown.
	shiftTime = 100 * time.Millisecond
)

const silence = 0xFF

// JitterStats contains counts since the start of the stream.
type JitterStats struct {
	// Received does not include duplicates. Lost packets never arrived. Late packets arrived after
	// silence had replaced them. Filled counts frames with inserted silence. Excess counts frames that
	// were dropped because they arrived faster than real time. Restarts counts new sequences of
	// timestamps.
	Received, Lost, Late, Duplicates, Filled, Excess, Restarts uint64
	// Jitter is the interarrival jitter (RFC 3550 A.8).
	Jitter time.Duration
}

// JitterBuffer converts the packets of one RTP stream into ordered frames of 20 ms, 50 per second.
// The caller passes the packets and the time. A JitterBuffer is not safe for concurrent use.
//
// The buffer does not delay packets that arrive in order. For a missing packet it waits 60 to 120
// ms, depending on the network, and then passes silence. It also passes silence while the sender
// sends no packets, because an agent that receives no audio cannot detect the end of an utterance.
type JitterBuffer struct {
	onFrame func(frame []byte)

	sequence sequenceNumber
	samples  [ringFrames * BufferedFrame]byte
	have     [ringFrames]uint32

	begun bool
	// headPos is the position of the next frame. topPos is the position after the newest sample.
	// Both count samples since the start. headTimestamp is the timestamp at headPos.
	headPos, topPos int64
	headTimestamp   uint32
	// silenceAt is the time at which silence replaces the frame at headPos.
	silenceAt time.Duration

	wait     time.Duration
	lateAt   time.Duration // time of the last late packet
	lateFrom time.Duration // time since which every packet has been late, or 0

	transit int64 // transit time of the previous packet in timestamp units
	jitter  int64 // jitter, multiplied by 16 as in RFC 3550 A.8
	late    uint64
	filled  uint64
	limit   FrameLimit
	excess  uint64
	restart uint64
	twice   uint64
}

// NewJitterBuffer returns a buffer that calls onFrame with each frame in order. The slice is valid
// only during the call of onFrame.
func NewJitterBuffer(onFrame func(frame []byte)) *JitterBuffer {
	b := &JitterBuffer{onFrame: onFrame, wait: minWait}
	for i := range b.samples {
		b.samples[i] = silence
	}
	return b
}

// Arrival is the result of Count for one packet. The caller passes it on to Audio.
type Arrival struct{ verdict arrivalVerdict }

// Count registers the sequence number of a packet, which need not contain audio. ok is false for a
// duplicate, and for a number far from all other numbers. The caller must drop such a packet.
func (b *JitterBuffer) Count(number uint16) (a Arrival, ok bool) {
	a.verdict = b.sequence.record(number)
	switch a.verdict {
	case verdictDuplicate:
		b.twice++
		return a, false
	case verdictFar:
		return a, false
	case verdictNewSequence:
		b.Restart()
	}
	return a, true
}

// Restart makes the next audio the start of a new stream, whose timestamps are unrelated to the
// earlier ones.
func (b *JitterBuffer) Restart() {
	if b.begun {
		b.restart++
	}
	b.clear()
	b.begun, b.lateFrom = false, 0
}

// NewSource discards the state of the timestamps and sequence numbers, because the packets now come
// from another source.
func (b *JitterBuffer) NewSource() {
	b.Restart()
	b.sequence.begun = false
}

// Audio adds the mu-law audio of a packet that Count accepted.
func (b *JitterBuffer) Audio(a Arrival, timestamp uint32, audio []byte, now time.Duration) {
	if len(audio) == 0 || len(audio) > (ringFrames-2)*BufferedFrame {
		return
	}
	b.updateJitter(timestamp, now)
	if !b.begun {
		b.begin(timestamp, now)
	}
	off := int64(int32(timestamp - b.headTimestamp))
	if off+int64(len(audio)) > (ringFrames-1)*BufferedFrame || off < -ringFrames*BufferedFrame {
		b.restartClock(timestamp)
		off = 0
	}
	if off+int64(len(audio)) <= 0 {
		b.late++
		if !b.recordLate(-off, now) {
			return
		}
		b.restartClock(timestamp)
		off = 0
	}
	b.lateFrom = 0
	if off < 0 {
		audio, off = audio[-off:], 0
	}
	// The timestamp jumped, but no packet is missing: the sender has paused.
	if a.verdict == verdictNext && b.headPos+off > b.topPos {
		if b.headPos+off > b.topPos+longestPause {
			b.restartClock(timestamp)
			off = 0
		} else {
			b.mark(b.topPos, b.headPos+off)
		}
	}
	b.writeSamples(b.headPos+off, audio)
	b.shrinkWait(now, len(audio))
	b.passFrames(now, len(audio))
}

// Elapse passes silence for frames that are overdue. The caller must call it about every 20 ms.
// After the first packet, frames continue even if no more packets arrive.
func (b *JitterBuffer) Elapse(now time.Duration) {
	for range maxFill {
		if !b.begun || now < b.silenceAt {
			return
		}
		b.filled++
		b.pass(now)
		b.silenceAt += bufferFrameTime
		b.passFrames(now, 0)
	}
	b.silenceAt = max(b.silenceAt, now)
}

// Stats returns the counts so far.
func (b *JitterBuffer) Stats() JitterStats {
	return JitterStats{
		Received: b.sequence.received, Lost: b.sequence.lost(), Late: b.late, Duplicates: b.twice, Filled: b.filled,
		Excess: b.excess, Restarts: b.restart,
		Jitter: time.Duration(b.jitter/16) * time.Second / 8000,
	}
}

func (b *JitterBuffer) begin(timestamp uint32, now time.Duration) {
	b.begun, b.headTimestamp = true, timestamp
	b.headPos, b.topPos = 0, 0
	b.silenceAt = now + bufferFrameTime + b.wait
}

// restartClock starts a new sequence of timestamps, which is unrelated to the earlier timestamps.
func (b *JitterBuffer) restartClock(timestamp uint32) {
	b.restart++
	b.clear()
	b.headTimestamp, b.lateFrom = timestamp, 0
}

func (b *JitterBuffer) clear() {
	for i := range b.samples {
		b.samples[i] = silence
	}
	clear(b.have[:])
	b.headPos, b.topPos = 0, 0
}

// recordLate records that a packet was late by the given number of samples. It returns true if all
// packets have been late for shiftTime, which means that the network delay has grown.
func (b *JitterBuffer) recordLate(by int64, now time.Duration) bool {
	b.wait = min(b.wait+time.Duration(by)*time.Second/8000, maxWait)
	b.lateAt = now
	if b.lateFrom == 0 {
		b.lateFrom = max(now, 1)
	}
	return now-b.lateFrom >= shiftTime
}

// shrinkWait shortens the wait after calmTime without late packets. The wait never becomes shorter
// than minWait or the length of a packet.
func (b *JitterBuffer) shrinkWait(now time.Duration, length int) {
	if now-b.lateAt < calmTime || b.wait == minWait {
		return
	}
	b.lateAt = now
	b.wait = max(b.wait-bufferFrameTime, minWait, time.Duration(length)*time.Second/8000)
}

// writeSamples writes the audio of a packet into the ring. It overwrites only silence, or samples
// that are equal.
func (b *JitterBuffer) writeSamples(at int64, audio []byte) {
	b.mark(at, at+int64(len(audio)))
	n := copy(b.samples[at%int64(len(b.samples)):], audio)
	copy(b.samples[:], audio[n:])
}

func (b *JitterBuffer) mark(from, to int64) {
	for at := from; at < to; {
		inFrame := at % BufferedFrame
		end := min(to, at-inFrame+BufferedFrame)
		first, last := inFrame/8, (inFrame+end-at+7)/8
		b.have[at/BufferedFrame%ringFrames] |= (1<<last - 1) &^ (1<<first - 1)
		at = end
	}
	b.topPos = max(b.topPos, to)
}

// passFrames passes all complete frames. length is the number of samples in the packet that
// completed them.
func (b *JitterBuffer) passFrames(now time.Duration, length int) {
	passed := false
	for b.have[b.headPos/BufferedFrame%ringFrames] == allGranules {
		b.pass(now)
		passed = true
	}
	if passed {
		b.silenceAt = now + b.wait + max(bufferFrameTime, time.Duration(length)*time.Second/8000)
	}
}

func (b *JitterBuffer) pass(now time.Duration) {
	at := b.headPos % int64(len(b.samples))
	frame := b.samples[at : at+BufferedFrame]
	if b.limit.Pass(bufferFrameTime, maxAhead, now) {
		b.onFrame(frame)
	} else {
		b.excess++
	}
	for i := range frame {
		frame[i] = silence
	}
	b.have[b.headPos/BufferedFrame%ringFrames] = 0
	b.headPos += BufferedFrame
	b.headTimestamp += BufferedFrame
	b.topPos = max(b.topPos, b.headPos)
}

// updateJitter calculates the jitter as defined in RFC 3550 A.8.
func (b *JitterBuffer) updateJitter(timestamp uint32, now time.Duration) {
	transit := int64(int32(uint32(now*8000/time.Second) - timestamp))
	if b.begun {
		off := transit - b.transit
		if off < 0 {
			off = -off
		}
		if off < 8000 { // a jump of the timestamps is not jitter
			b.jitter += off - (b.jitter+8)/16
		}
	}
	b.transit = transit
}
