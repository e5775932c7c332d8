package callstate

import "time"

// Waits limits how long call.completed waits for the charge and for the analysis.
type Waits struct {
	Charge   time.Duration
	Analysis time.Duration
}

// completesAt returns the time until which call.completed waits for the charge and the analysis.
func (c *Call) completesAt(waits Waits) time.Time {
	due := *c.EndLearnedAt
	if !c.chargeKnown() {
		due = later(due, c.EndLearnedAt.Add(waits.Charge))
	}
	if !c.Analysed {
		due = later(due, c.EndLearnedAt.Add(waits.Analysis))
	}
	return due
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
