package main

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"
)

// Faults that the exchange commits on demand. The first group breaks the answer to an originate, the second the call, the third the news of it; what
// really happens on the telephone stands in GET /log as ever.
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

// faults says of each what it does, in the order in which help lists them.
var faults = [...]struct{ name, does string }{
	{FaultRefuse, "503, nothing rings"},
	{FaultCrash, "dials, then the process kills itself before it has answered"},
	{FaultCrashUndialed, "the process kills itself, nothing rings"},
	{FaultHang, "dials, and never answers the originate"},
	{FaultHangUndialed, "never answers the originate, nothing rings"},
	{FaultLate, "dials and answers after delay_ms, also when the asker has left"},
	{FaultDead, "nothing happens after the originate"},
	{FaultEndless, "rings and rings"},
	{FaultHold, "answers and says nothing, until somebody hangs up"},
	{FaultAnswerTwice, "tells the answer twice"},
	{FaultRepeat, "tells all news of the call twice"},
	{FaultDisorder, "tells the news of the call in the wrong order, two and two swapped"},
	{FaultLose, "tells no news of the call"},
	{FaultLoseEnd, "does not tell that the call ended"},
}

// ErrNoSuchFault says that a rule names a fault that is not known.
var ErrNoSuchFault = errors.New("no such fault")

// Rule has the calls of a range of numbers go wrong.
type Rule struct {
	Fault string `json:"fault"`
	// To is how the other party's number begins; empty: every number.
	To string `json:"to"`
	// Times is how many calls it strikes; 0: every one.
	Times int `json:"times"`
	// DelayMS is how late FaultLate is, never scaled.
	DelayMS int64 `json:"delay_ms"`
	// Struck is how many it has struck.
	Struck int `json:"struck"`
}

// FaultHelp lists the faults, a line each.
func FaultHelp() string {
	var b strings.Builder
	for _, f := range faults {
		b.WriteString("  " + f.name + strings.Repeat(" ", 16-len(f.name)) + f.does + "\n")
	}
	return b.String()
}

// Break adds a rule. Of several that cover a number the oldest that has strikes left holds. Rules die with the process.
func (x *Exchange) Break(r Rule) error {
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

// Mend drops every rule. Calls that were struck stay struck.
func (x *Exchange) Mend() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rules = nil
}

// Rules are those in force, oldest first.
func (x *Exchange) Rules() []Rule {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.rules)
}

// strike answers the rule that a call with this number meets, and counts it. Without one the answer names no fault.
func (x *Exchange) strike(number string) Rule {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.rules {
		r := &x.rules[i]
		if strings.HasPrefix(number, r.To) && (r.Times == 0 || r.Struck < r.Times) {
			r.Struck++
			slog.Info("fault", "fault", r.Fault, "struck", r.Struck)
			return *r
		}
	}
	return Rule{}
}

func (r Rule) delay() time.Duration { return time.Duration(r.DelayMS) * time.Millisecond }

// die is a crash: nothing is flushed, nobody is told.
func die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// cut leaves out what the far end of a call with a fault does not do.
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

// hides says that news of this kind are not told, or not yet.
func (l *line) hides(kind string) bool {
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

// echoes are the news that are told after e, once more or at last.
func (l *line) echoes(e Entry) (again []Entry) {
	switch {
	case l.fault == FaultRepeat, l.fault == FaultAnswerTwice && e.Kind == KindAnswer:
		again = []Entry{e}
	case l.fault == FaultDisorder && e.Untold:
		l.held = &e
	case l.fault == FaultDisorder && l.held != nil:
		again, l.held = []Entry{*l.held}, nil
	}
	for i := range again {
		again[i].Echo, again[i].Untold = true, false
	}
	return again
}
