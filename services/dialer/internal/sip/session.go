package sip

import (
	"strconv"
	"strings"
	"time"
)

// Refresher is the side that refreshes a session. UAC is the sender of the request that set up the
// session, and UAS is its receiver.
type Refresher string

// Values of Refresher. NoRefresher means that the header names no refresher.
const (
	NoRefresher Refresher = ""
	UAC         Refresher = "uac"
	UAS         Refresher = "uas"
)

// maxSessionInterval is the longest interval that is accepted from a header.
const maxSessionInterval = 24 * time.Hour

// minRefreshInterval is the shortest time between two refreshes.
const minRefreshInterval = time.Second

// Expires is a Session-Expires header (RFC 4028). The zero value means that there is no such
// header.
type Expires struct {
	After     time.Duration
	Refresher Refresher
}

// ParseSessionExpires reads a Session-Expires or Min-SE value. It returns false if the value is
// invalid. The session then has no timer.
func ParseSessionExpires(value string) (Expires, bool) {
	parts := strings.Split(value, ";")
	seconds, err := strconv.ParseUint(strings.TrimSpace(parts[0]), 10, 32)
	if err != nil || seconds == 0 {
		return Expires{}, false
	}
	e := Expires{After: min(time.Duration(seconds)*time.Second, maxSessionInterval)}
	for _, param := range parts[1:] {
		name, text, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "refresher") {
			continue
		}
		switch who := Refresher(strings.ToLower(strings.TrimSpace(text))); who {
		case UAC, UAS:
			e.Refresher = who
		}
	}
	return e, true
}

// String returns the value of the header, in whole seconds.
func (e Expires) String() string {
	text := strconv.FormatInt(int64(e.After/time.Second), 10)
	if e.Refresher != NoRefresher {
		text += ";refresher=" + string(e.Refresher)
	}
	return text
}

// RefreshTime returns the time from one refresh to the next: half of the interval (RFC 4028 section
// 7.2).
func (e Expires) RefreshTime() time.Duration { return max(e.After/2, minRefreshInterval) }

// HangupTime returns the time from the last refresh until the side that does not refresh hangs up.
// It hangs up before the interval ends: 32 s, or a third of the interval if that is less (RFC 4028
// section 10).
func (e Expires) HangupTime() time.Duration { return e.After - min(32*time.Second, e.After/3) }

// Accept returns the session timer for the response to a request with this header. If the header
// names no refresher, the sender of the request refreshes. If the interval is shorter than
// minInterval, tooSmall is true.
func (e Expires) Accept(minInterval time.Duration) (answer Expires, tooSmall bool) {
	if e.After == 0 {
		return Expires{}, false
	}
	if e.After < minInterval {
		return Expires{}, true
	}
	if e.Refresher == NoRefresher {
		e.Refresher = UAC
	}
	return e, false
}

// Annotate adds the headers of an agreed session timer to a response. If the peer must refresh, the
// headers require that it supports timers (RFC 4028 section 9).
func (e Expires) Annotate(put func(name, value string)) {
	if e.After == 0 {
		return
	}
	put("Session-Expires", e.String())
	if e.Refresher == UAC {
		put("Require", "timer")
	}
}
