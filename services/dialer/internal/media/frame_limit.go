package media

import "time"

// FrameLimit limits received audio and digits to real time plus a burst. A flood of packets would
// be expensive, because AI models charge for all audio. The zero value is ready to use. FrameLimit
// is not safe for concurrent use.
type FrameLimit struct {
	spent time.Duration // used part of the burst
	at    time.Duration
}

// Pass reports whether a frame of the given length may pass at the time now. burst is the maximum
// length of audio that may arrive ahead of real time.
func (l *FrameLimit) Pass(length, burst, now time.Duration) bool {
	l.spent = max(l.spent-(now-l.at), 0)
	l.at = now
	if l.spent+length > burst {
		return false
	}
	l.spent += length
	return true
}
