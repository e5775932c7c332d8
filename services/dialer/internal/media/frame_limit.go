package media

import "time"

// FrameLimit limits the rate of audio and digits to real time plus a burst, because an agent
// charges for all audio that it receives. The zero FrameLimit has its full burst. FrameLimit is not
// safe for concurrent use.
type FrameLimit struct {
	spent time.Duration // used part of the burst
	at    time.Duration
}

// Pass reports whether a frame of the given length may pass at the time now. burst is the maximum
// amount beyond real time.
func (l *FrameLimit) Pass(length, burst, now time.Duration) bool {
	l.spent = max(l.spent-(now-l.at), 0)
	l.at = now
	if l.spent+length > burst {
		return false
	}
	l.spent += length
	return true
}
