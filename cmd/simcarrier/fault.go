package main

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"
)

// The faults that a rule can request. The first group changes the response to an originate request.
// The second group changes the call. The third group changes the events of the call. GET /log
// always shows what really happened.
const (
	FaultRefuse        = "refuse"
	FaultCrash         = "crash"
	FaultCrashUndialed = "crash_undialed"
	FaultHang          = "hang"
	FaultHangUndialed  = "hang_undialed"
	FaultLate          = "late"

	FaultDead    = "dead"
	FaultEndless = "endless"
	FaultHold    = "hold"

	FaultAnswerTwice = "answer_twice"
	FaultRepeat      = "repeat"
	FaultDisorder    = "disorder"
	FaultLose        = "lose"
	FaultLoseEnd     = "lose_end"
)

var faults = [...]struct{ name, does string }{
	{FaultRefuse, "returns 503, and no phone rings"},
	{FaultCrash, "dials, and kills the process before the response"},
	{FaultCrashUndialed, "kills the process, and no phone rings"},
	{FaultHang, "dials, and never responds to the originate request"},
	{FaultHangUndialed, "never responds to the originate request, and no phone rings"},
	{FaultLate, "dials and responds after delay_ms, even if the client has disconnected"},
	{FaultDead, "accepts the originate request, and nothing follows"},
	{FaultEndless, "rings until the call is canceled"},
	{FaultHold, "answers, and is silent until the other side hangs up"},
	{FaultAnswerTwice, "sends the answered event twice"},
	{FaultRepeat, "sends every event of the call twice"},
	{FaultDisorder, "sends the events of the call in the wrong order: swaps each pair of events"},
	{FaultLose, "sends no events of the call"},
	{FaultLoseEnd, "does not send the event that the call has ended"},
}

// ErrNoSuchFault is returned for an unknown fault.
var ErrNoSuchFault = errors.New("no such fault")

// Rule requests a fault for the calls of a range of numbers.
type Rule struct {
	Fault string `json:"fault"`
	// To is the prefix of the other party's number. An empty prefix matches every number.
	To string `json:"to"`
	// Times is the number of calls that get the fault. 0 means every call.
	Times int `json:"times"`
	// DelayMS is the delay of FaultLate in milliseconds. The time scale does not apply to it.
	DelayMS int64 `json:"delay_ms"`
	// Struck is the number of calls that have had the fault so far.
	Struck int `json:"struck"`
}

// FaultHelp describes the faults, one per line.
func FaultHelp() string {
	var b strings.Builder
	for _, f := range faults {
		b.WriteString("  " + f.name + strings.Repeat(" ", 16-len(f.name)) + f.does + "\n")
	}
	return b.String()
}

// AddFault adds a rule. If several rules match a number, the oldest rule with remaining calls
// applies. A restart deletes all rules.
func (x *Network) AddFault(r Rule) error {
	known := false
	for _, f := range faults {
		known = known || f.name == r.Fault
	}
	if !known || r.Times < 0 || r.DelayMS < 0 {
		return ErrNoSuchFault
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	r.Struck = 0
	x.rules = append(x.rules, r)
	return nil
}

// ClearFaults deletes every rule. Calls that already have a fault keep it.
func (x *Network) ClearFaults() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rules = nil
}

// Rules returns the rules, oldest first.
func (x *Network) Rules() []Rule {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.rules)
}

// applyRule returns the rule that applies to a call with this number, and counts the call for the
// rule. If no rule applies, it returns the zero Rule.
func (x *Network) applyRule(number string) Rule {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.rules {
		r := &x.rules[i]
		if strings.HasPrefix(number, r.To) && (r.Times == 0 || r.Struck < r.Times) {
			r.Struck++
			slog.Info("fault applied to a call", "fault", r.Fault, "calls_with_fault", r.Struck)
			return *r
		}
	}
	return Rule{}
}

func (r Rule) delay() time.Duration { return time.Duration(r.DelayMS) * time.Millisecond }

// exitWithoutFlush ends the process without flushing anything, as a crash does.
func exitWithoutFlush() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

func (l *line) cut(steps []step) []step {
	switch l.fault {
	case FaultDead:
		return nil
	case FaultEndless:
		return steps[:min(len(steps), 1)]
	case FaultHold:
		return steps[:min(len(steps), 2)]
	}
	return steps
}

// hidesEvent reports whether the fault of the call omits or delays events of this kind.
func (l *line) hidesEvent(kind string) bool {
	switch l.fault {
	case FaultLose:
		return true
	case FaultLoseEnd:
		return kind == KindHangup
	case FaultDisorder:
		return l.held == nil && kind != KindHangup
	}
	return false
}

// repeatedEvents returns the repeated or delayed events that the network sends after the event e.
func (l *line) repeatedEvents(e Entry) (again []Entry) {
	switch {
	case l.fault == FaultRepeat, l.fault == FaultAnswerTwice && e.Kind == KindAnswer:
		again = []Entry{e}
	case l.fault == FaultDisorder && e.Unreported:
		l.held = &e
	case l.fault == FaultDisorder && l.held != nil:
		again, l.held = []Entry{*l.held}, nil
	}
	for i := range again {
		again[i].Echo, again[i].Unreported = true, false
	}
	return again
}
