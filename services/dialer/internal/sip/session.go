// Package session owns the rules of session timers (RFC 4028): what a Session-Expires header says, and when whom must do what so that a call which lost its
// far end does not go on for ever. It is pure.

package sip

import (
	"strconv"
	"strings"
	"time"
)

// Refresher is who keeps a session alive, as the party of the request that set it up.
type Refresher string

// Refreshers.
const (
	NoRefresher Refresher = ""
	UAC         Refresher = "uac"
	UAS         Refresher = "uas"
)

// maxSessionInterval bounds what a header may ask for.
const maxSessionInterval = 24 * time.Hour

// minRefreshInterval is the least pause between refreshes that we let ourselves be asked for.
const minRefreshInterval = time.Second

// Expires is a Session-Expires header. The zero value is none.
type Expires struct {
	After     time.Duration
	Refresher Refresher
}

// ParseSessionExpires reads a Session-Expires or Min-SE value. false: it cannot be read; the session then has no timer.
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

// String is the header's value, in whole seconds.
func (e Expires) String() string {
	text := strconv.FormatInt(int64(e.After/time.Second), 10)
	if e.Refresher != NoRefresher {
		text += ";refresher=" + string(e.Refresher)
	}
	return text
}

// Refresh is how long after the last refresh the next one is due: half of the interval (RFC 4028 7.2).
func (e Expires) Refresh() time.Duration { return max(e.After/2, minRefreshInterval) }

// Lost is how long after the last refresh the side that does not refresh hangs up: the lesser of 32 s and a third of the interval before its end
// (RFC 4028 10).
func (e Expires) Lost() time.Duration { return e.After - min(32*time.Second, e.After/3) }

// Accept answers the request of a peer that asks for a timer; nothing when it asked for none. Whoever is not named refreshes by himself: it is left to the one
// that asked. tooSmall says that the interval is below the least that we accept (422).
func (e Expires) Accept(least time.Duration) (answer Expires, tooSmall bool) {
	if e.After == 0 {
		return Expires{}, false
	}
	if e.After < least {
		return Expires{}, true
	}
	if e.Refresher == NoRefresher {
		e.Refresher = UAC
	}
	return e, false
}

// Annotate puts an answer that sets up a timer into a response: nothing when there is none. A peer that is to refresh must know of timers (RFC 4028 9).
func (e Expires) Annotate(put func(name, value string)) {
	if e.After == 0 {
		return
	}
	put("Session-Expires", e.String())
	if e.Refresher == UAC {
		put("Require", "timer")
	}
}
