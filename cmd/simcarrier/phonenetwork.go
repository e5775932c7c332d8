// The simulated telephone network. The last two digits of a number determine whether a phone rings
// and answers, what the person says, and how the call ends (docs/test-numbers.md). The journal
// records what really happened; tests count the dials in it.

package main

import (
	"log/slog"
	"sync"
	"time"

	"ringfence.dev/libs/phone"
)

// Call is the state of one call.
type Call struct {
	CallID     string     `json:"call_id"`
	State      string     `json:"state"` // "dialing", "ringing", "answered" or "ended"
	From       string     `json:"from"`
	To         string     `json:"to"`
	Inbound    bool       `json:"inbound,omitempty"`
	DialedAt   *time.Time `json:"dialed_at,omitempty"`
	RingingAt  *time.Time `json:"ringing_at,omitempty"`
	AnsweredAt *time.Time `json:"answered_at,omitempty"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	Cause      string     `json:"cause,omitempty"`
	By         string     `json:"by,omitempty"`
}

// line is one dialed call. A second originate request with the same id creates a second line.
type line struct {
	call   Call
	steps  []step
	waited bool
	timer  *time.Timer
	// fault is the fault that applies to the events of the line. held is the event that
	// FaultDisorder sends after the next event.
	fault string
	held  *Entry
}

// Network is the simulated network. Its methods can be called concurrently.
type Network struct {
	journal *Journal
	scale   float64

	mu    sync.Mutex
	lines map[string][]*line // the lines of each call id, in the order of dialing
	rules []Rule
}

// New opens the network with the journal in a directory. scale multiplies every simulated duration;
// 0 means no delay. For calls that were live when the last process died, New adds a hangup to the
// journal.
func New(dir string, scale float64) (*Network, error) {
	x := &Network{scale: scale, lines: map[string][]*line{}}
	journal, err := OpenJournal(dir, x.replay)
	if err != nil {
		return nil, err
	}
	x.journal = journal
	for _, lines := range x.lines {
		for _, l := range lines {
			if l.call.EndedAt != nil {
				continue
			}
			if err := x.end(l, "network_out_of_order", "carrier"); err != nil {
				return nil, err
			}
		}
	}
	return x, nil
}

func (x *Network) replay(e Entry) {
	if e.Echo {
		return
	}
	lines := x.lines[e.CallID]
	if e.Kind == KindOriginate || e.Kind == KindRinging && e.Inbound {
		l := &line{call: Call{CallID: e.CallID, From: e.From, To: e.To, Inbound: e.Inbound}}
		l.note(e)
		x.lines[e.CallID] = append(lines, l)
		return
	}
	for _, l := range lines { // if the call id has two live lines, e belongs to the older line
		if l.call.EndedAt == nil {
			l.note(e)
			return
		}
	}
}

func (l *line) note(e Entry) {
	switch at := e.At; e.Kind {
	case KindOriginate:
		l.call.State, l.call.DialedAt = "dialing", e.DialedAt
	case KindRinging:
		l.call.State, l.call.RingingAt = "ringing", &at
	case KindAnswer:
		l.call.State, l.call.AnsweredAt = "answered", &at
	case KindHangup:
		l.call.State, l.call.EndedAt, l.call.Cause, l.call.By = "ended", &at, e.Cause, e.By
	}
}

// Originate calls a number. A second Originate with the same id calls the number again, because a
// real carrier does not prevent a second dial.
func (x *Network) Originate(callID, from, to string, dialedAt *time.Time) error {
	return x.dial(callID, from, to, dialedAt, "")
}

// dial does what Originate does, and applies the fault to the call.
func (x *Network) dial(callID, from, to string, dialedAt *time.Time, fault string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := &line{call: Call{CallID: callID, From: from, To: to, DialedAt: dialedAt}, fault: fault}
	l.steps = l.cut(outboundScript(to, callID))
	if err := x.appendEntry(l, Entry{Kind: KindOriginate}); err != nil {
		return err
	}
	x.lines[callID] = append(x.lines[callID], l)
	l.timer = time.AfterFunc(0, func() { x.performSteps(l) })
	return nil
}

// Inbound calls one of the dialer's numbers. If from is empty, the caller withholds the number.
func (x *Network) Inbound(callID, from, to string) error {
	fault := x.applyRule(from).Fault
	x.mu.Lock()
	defer x.mu.Unlock()
	l := &line{call: Call{CallID: callID, From: from, To: to, Inbound: true}, fault: fault}
	if err := x.appendEntry(l, Entry{Kind: KindRinging}); err != nil {
		return err
	}
	x.lines[callID] = append(x.lines[callID], l)
	l.steps = []step{{after: waitForDialer, ignoresScale: true, kind: KindHangup, cause: "originator_cancel",
		by: "person"}}
	l.timer = time.AfterFunc(0, func() { x.performSteps(l) })
	return nil
}

// Answer answers an inbound call that rings. A second Answer changes nothing. known is false if no
// call has the id.
func (x *Network) Answer(callID string) (call Call, known bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.newest(callID)
	if l == nil {
		return Call{}, false, nil
	}
	if l.call.Inbound && l.call.State == "ringing" {
		l.timer.Stop()
		if err := x.appendEntry(l, Entry{Kind: KindAnswer}); err != nil {
			return Call{}, true, err
		}
		l.steps, l.waited = inboundScript(l.call.From, callID), false
		l.timer = time.AfterFunc(0, func() { x.performSteps(l) })
	}
	return l.call, true, nil
}

// Hangup ends every line of a call. It returns the previous state of the call and the call. byParty
// is the dialer, or the person in a test. An empty cause means normal_clearing, or
// originator_cancel before the answer.
func (x *Network) Hangup(callID, cause, byParty string) (previousState string, call Call, known bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	newest := x.newest(callID)
	if newest == nil {
		return "", Call{}, false, nil
	}
	previousState = newest.call.State
	for _, l := range x.lines[callID] {
		if l.call.EndedAt != nil {
			continue
		}
		ended := cause
		if ended == "" && l.call.AnsweredAt == nil {
			ended = "originator_cancel"
		} else if ended == "" {
			ended = "normal_clearing"
		}
		if err := x.end(l, ended, byParty); err != nil {
			return previousState, Call{}, true, err
		}
	}
	return previousState, newest.call, true, nil
}

// Find returns a call.
func (x *Network) Find(callID string) (call Call, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.newest(callID); l != nil {
		return l.call, true
	}
	return Call{}, false
}

// Journal returns the journal.
func (x *Network) Journal() *Journal { return x.journal }

func (x *Network) newest(callID string) *line {
	lines := x.lines[callID]
	if len(lines) == 0 {
		return nil
	}
	return lines[len(lines)-1]
}

// performSteps performs the steps that are due and sets the timer for the next one.
func (x *Network) performSteps(l *line) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(l.steps) > 0 && l.call.EndedAt == nil {
		next := l.steps[0]
		wait := time.Duration(float64(next.after) * x.scale)
		if next.ignoresScale {
			wait = next.after
		}
		if wait > 0 && !l.waited {
			l.waited = true
			l.timer = time.AfterFunc(wait, func() { x.performSteps(l) })
			return
		}
		entry := Entry{Kind: next.kind, Text: next.text, Cause: next.cause, By: x.partyName(l, next.by)}
		if err := x.appendEntry(l, entry); err != nil {
			// The disk is probably full, so try again later.
			l.timer = time.AfterFunc(time.Second, func() { x.performSteps(l) })
			return
		}
		l.steps, l.waited = l.steps[1:], false
	}
}

// partyName returns the name of a party in the journal. The person at the far end is the caller or
// the callee, depending on the direction of the call.
func (x *Network) partyName(l *line, by string) string {
	switch {
	case by == "person" && l.call.Inbound:
		return "caller"
	case by == "person":
		return "callee"
	}
	return by
}

func (x *Network) end(l *line, cause, by string) error {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.steps = nil
	return x.appendEntry(l, Entry{Kind: KindHangup, Cause: cause, By: by})
}

// appendEntry appends an entry to the journal and applies it to the state of the line.
func (x *Network) appendEntry(l *line, e Entry) error {
	e.CallID, e.From, e.To = l.call.CallID, l.call.From, l.call.To
	e.Inbound, e.DialedAt = l.call.Inbound, l.call.DialedAt
	e.Unreported = l.hidesEvent(e.Kind)
	e, err := x.journal.Append(e)
	if err != nil {
		return err
	}
	l.note(e)
	logEvent(e)
	for _, echo := range l.repeatedEvents(e) {
		if _, err := x.journal.Append(echo); err != nil {
			slog.Error("delayed or repeated call event not written to the journal", "call_id", e.CallID, "error", err)
		}
	}
	return nil
}

// logEvent writes an entry to the process log, without spoken text.
func logEvent(e Entry) {
	switch e.Kind {
	case KindOriginate, KindRinging, KindAnswer:
		slog.Info(e.Kind, "call_id", e.CallID, "to", phone.Number(e.To).Masked())
	case KindHangup:
		slog.Info(e.Kind, "call_id", e.CallID, "to", phone.Number(e.To).Masked(), "cause", e.Cause, "by", e.By)
	}
}
