package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ringfence.dev/libs/money"
)

// guarantee is a guarantee that the run checks.
type guarantee int

const (
	atMostOnceDialing guarantee = iota
	dialTimeCompliance
	exactMoney
	everyRequestEnds
	noLostEvent
	tenantIsolation
	durability
	trueResponses
	guaranteeCount
)

// describe returns the name of the guarantee. The result breach is the word for a violation in the
// report.
func (l guarantee) describe() (says, breach string) {
	return [guaranteeCount]string{
		"at-most-once dialing", "compliance at dial time", "exact money",
		"every request ends, once", "no lost event", "tenant isolation", "durability",
		"responses are true",
	}[l], [guaranteeCount]string{"doubles", "forbidden", "difference", "stuck", "missing", "foreign", "lost", "wrong"}[l]
}

// Report is the result of a run.
type Report struct {
	SIP                 bool
	Seed                uint64
	Commit, Fingerprint string
	Broker              string
	Planned, Replicas   int
	Length              time.Duration
	Storm, Settled      time.Duration
	Faults              faultCounts
	Answers             map[string]map[int]int
	Missed              int

	Accepted, Dials          int
	Requests, Calls, Codes   map[string]int
	Delivered, Twice         int
	Recorded                 map[string]int
	Paid, Charged, Different money.Micro
	Breaches                 [guaranteeCount][]string
}

func newReport() *Report {
	return &Report{Requests: map[string]int{}, Calls: map[string]int{}, Codes: map[string]int{}, Recorded: map[string]int{}, Faults: faultCounts{}}
}

func (r *Report) broken(l guarantee, how ...string) { r.Breaches[l] = append(r.Breaches[l], how...) }

// addMoneyFault records a violation of exactMoney.
func (r *Report) addMoneyFault(amount money.Micro, how string) {
	r.Different += max(amount, -amount)
	r.broken(exactMoney, how)
}

// Holds reports whether no guarantee was violated.
func (r *Report) Holds() bool {
	return !slices.ContainsFunc(r.Breaches[:], func(how []string) bool { return len(how) > 0 })
}

const maxNamed = 20

func (r *Report) String() string {
	var b strings.Builder
	total := 0
	for _, kinds := range r.Faults {
		for _, n := range kinds {
			total += n
		}
	}
	over := ""
	if r.SIP {
		over = " · over SIP"
	}
	fmt.Fprintf(&b, "CHAOS  seed %d · plan %s · commit %s · %d of each service%s · broker %s\n", r.Seed, r.Fingerprint, r.Commit, r.Replicas, over, r.Broker)
	fmt.Fprintf(&b, "       %s of load under %d faults (%d planned for %s), settled %s later\n\n",
		r.Storm.Round(time.Second), total, r.Planned, r.Length, r.Settled.Round(100*time.Millisecond))
	row := func(what, figures string) { fmt.Fprintf(&b, "  %-10s %s\n", what, figures) }
	row("requests", fmt.Sprintf("%d: %s", sum(r.Requests), formatCounts(r.Requests)))
	row("", fmt.Sprintf("%d of them were answered with their id", r.Accepted))
	if r.Missed > 0 {
		row("", fmt.Sprintf("%d operations were left out, because %d were open", r.Missed, maxOpen))
	}
	if len(r.Codes) > 0 {
		row("", "codes: "+formatCounts(r.Codes))
	}
	row("dials", fmt.Sprint(r.Dials))
	row("calls", fmt.Sprintf("%d: %s", sum(r.Calls), formatCounts(r.Calls)))
	row("webhooks", fmt.Sprintf("%d events delivered, %d of them more than once, %d skipped while paused, %d given up", r.Delivered, r.Twice, r.Recorded["skipped"], r.Recorded["failed"]))
	row("money", fmt.Sprintf("%s paid in, %s charged", r.Paid, r.Charged))
	b.WriteString("\n" + r.answers() + "\n" + r.faults() + "\n")
	for l := range guaranteeCount {
		says, breach := l.describe()
		figure, mark := fmt.Sprint(len(r.Breaches[l])), "✓"
		if l == exactMoney && len(r.Breaches[l]) == 0 || r.Different > 0 && l == exactMoney {
			figure = r.Different.String()
		}
		if len(r.Breaches[l]) > 0 {
			mark = "✗"
		}
		fmt.Fprintf(&b, "  %s %-50s %8s %s\n", mark, says, figure, breach)
	}
	for l := range guaranteeCount {
		how := r.Breaches[l]
		if len(how) == 0 {
			continue
		}
		says, _ := l.describe()
		fmt.Fprintf(&b, "\n  BROKEN: %s\n", strings.TrimSpace(says))
		for _, one := range how[:min(maxNamed, len(how))] {
			fmt.Fprintf(&b, "    %s\n", one)
		}
		if more := len(how) - maxNamed; more > 0 {
			fmt.Fprintf(&b, "    and %d more\n", more)
		}
	}
	if r.Holds() {
		b.WriteString("\n  Every guarantee held.\n")
	} else {
		fmt.Fprintf(&b, "\n  Again: RINGFENCE_SEED=%d make chaos\n", r.Seed)
	}
	return b.String()
}

func (r *Report) answers() string {
	var b strings.Builder
	statuses := map[int]bool{}
	for _, of := range r.Answers {
		for status := range of {
			statuses[status] = true
		}
	}
	columns := slices.Sorted(maps.Keys(statuses))
	fmt.Fprintf(&b, "  %-20s", "answers")
	for _, status := range columns {
		if status == 0 {
			fmt.Fprintf(&b, "%7s", "none")
		} else {
			fmt.Fprintf(&b, "%7d", status)
		}
	}
	b.WriteString("\n")
	for _, operation := range slices.Sorted(maps.Keys(r.Answers)) {
		fmt.Fprintf(&b, "  %-20s", operation)
		for _, status := range columns {
			b.WriteString(cell(r.Answers[operation][status]))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (r *Report) faults() string {
	var b strings.Builder
	table := func(title string, targets []string, kinds []Kind) {
		fmt.Fprintf(&b, "  %-30s", title)
		for _, kind := range kinds {
			fmt.Fprintf(&b, "%7s", kind)
		}
		b.WriteString("\n")
		for _, target := range targets {
			if len(r.Faults[target]) == 0 {
				continue
			}
			fmt.Fprintf(&b, "  %-30s", target)
			for _, kind := range kinds {
				b.WriteString(cell(r.Faults[target][kind]))
			}
			b.WriteString("\n")
		}
	}
	table("faults", killable(), onProcess())
	table("", links(), onLink())
	if n := r.Faults[everything][Blackout]; n > 0 {
		fmt.Fprintf(&b, "  %-30s%7d all at once\n", everything, n)
	}
	return b.String()
}

func cell(n int) string {
	if n == 0 {
		return "      ·"
	}
	return fmt.Sprintf("%7d", n)
}

func sum(of map[string]int) (all int) {
	for _, n := range of {
		all += n
	}
	return all
}

// The largest counts come first.
func formatCounts(of map[string]int) string {
	names := slices.Collect(maps.Keys(of))
	slices.SortFunc(names, func(a, b string) int {
		if of[a] != of[b] {
			return of[b] - of[a]
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", of[name], name)
	}
	return strings.Join(names, ", ")
}
