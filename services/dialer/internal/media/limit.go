// Package flood bounds what a far end can make others hear: an agent is paid for by what it hears, however fast that comes.

package media

import "time"

// FrameLimit lets things of a certain length pass no faster than the time goes by, but for what was saved up. The zero Limit is full. Not safe for use by several goroutines.
type FrameLimit struct {
	spent time.Duration // of what may be saved up
	at    time.Duration
}

// Pass says whether another thing of that length may pass now; most is what may be saved up.
func (l *FrameLimit) Pass(length, most, now time.Duration) bool {
	l.spent = max(l.spent-(now-l.at), 0)
	l.at = now
	if l.spent+length > most {
		return false
	}
	l.spent += length
	return true
}
