// Package alert knows what Ringfence promises its customers in numbers, what is worth waking somebody for, and with which series each alert is tried. It
// renders rules and their trials; it reads and writes no file.
package alert

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Severity says who is told, and when.
type Severity string

// Page wakes somebody: a customer is hurt now, or a law is broken. Ticket waits for the morning.
const (
	Page   Severity = "page"
	Ticket Severity = "ticket"
)

// Alert is one rule. In Expr a range ([5m]) and a bound in seconds (<2m>) are times that Render can shrink; so is For.
type Alert struct {
	Name     string
	Severity Severity
	For      string
	Expr     string
	// Summary is one sentence for whoever is woken; Description says what it means and may hold templates.
	Summary, Description string
	Trial                []Series
	// Calm is what looks like it and must not fire.
	Calm []Series
	// Absent: it fires when nothing is told at all.
	Absent bool
}

// Series is what a metric does in an alert's trial: while all is well and while it is not. With Grows the values are what it grows by in a minute; Born: it
// is there only while it is ill; Gone: only while all is well; Once: it is ill for the first two minutes alone.
type Series struct {
	Name      string
	Well, Ill float64
	Grows     bool
	Born      bool
	Gone      bool
	Once      bool
}

// Group is a file: what is evaluated, and tried, together.
type Group struct {
	Name   string
	Alerts []Alert
}

// Groups are all alerts.
func Groups() []Group {
	return []Group{{promised, promises()}, {"calls", calls()}, {"laws", laws()}, {"delivery", delivery()}, {"platform", platform()}}
}

// Options say for whom rules are rendered.
type Options struct {
	// Shrink divides every time in them: 60 makes an hour a minute, for a trial on a live stack. Zero: 1.
	Shrink int
	// Runbooks is the address under which deploy/runbooks is found; empty: that path itself.
	Runbooks string
}

// Render is the rule file of a group.
func Render(group Group, o Options) string {
	if o.Runbooks == "" {
		o.Runbooks = "deploy/runbooks"
	}
	o.Shrink = max(o.Shrink, 1)
	var out strings.Builder
	out.WriteString("# Written by `go run ./deploy/prometheus`; the source is deploy/prometheus/internal/alert.\ngroups:\n")
	if group.Name == promised {
		for _, s := range slos() {
			fmt.Fprintf(&out, "  - name: ringfence-slo-%s\n    rules:\n", s.name)
			for _, window := range windows {
				fmt.Fprintf(&out, "      - record: slo:errors:ratio_%s\n        labels: {slo: %s}\n        expr: |\n%s", window, s.name, indented(o.shrunk(s.ratio(window))))
			}
		}
	}
	fmt.Fprintf(&out, "  - name: ringfence-%s\n    rules:\n", group.Name)
	for _, a := range group.Alerts {
		fmt.Fprintf(&out, "      - alert: %s\n        expr: |\n%s", a.Name, indented(o.shrunk(a.Expr)))
		if a.For != "" {
			fmt.Fprintf(&out, "        for: %s\n", o.shorter(a.For, time.Second))
		}
		fmt.Fprintf(&out, "        labels: {severity: %s}\n        annotations:\n          summary: %s\n          description: %s\n          runbook_url: %s\n",
			a.Severity, strconv.Quote(a.Summary), strconv.Quote(a.Description), o.Runbooks+"/"+a.Name+".md")
	}
	return out.String()
}

func indented(expr string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.TrimSpace(expr) + "\n") {
		out.WriteString("          " + line)
	}
	return out.String()
}

var (
	ranges = regexp.MustCompile(`\[([0-9]+[smhd])\]`)
	bounds = regexp.MustCompile(`<([0-9]+[smhd])>`)
)

func (o Options) shrunk(expr string) string {
	expr = ranges.ReplaceAllStringFunc(expr, func(found string) string { return "[" + o.shorter(found[1:len(found)-1], leastRange) + "]" })
	return bounds.ReplaceAllStringFunc(expr, func(found string) string {
		return strconv.FormatFloat(seconds(found[1:len(found)-1])/float64(o.Shrink), 'f', -1, 64)
	})
}

// leastRange is what rates need over a scrape of a second.
const leastRange = 4 * time.Second

func (o Options) shorter(duration string, least time.Duration) string {
	if o.Shrink == 1 {
		return duration
	}
	return strconv.Itoa(int(max(seconds(duration)*1000/float64(o.Shrink), float64(least.Milliseconds())))) + "ms"
}

func seconds(duration string) float64 {
	if days, ok := strings.CutSuffix(duration, "d"); ok {
		n, _ := strconv.Atoi(days)
		return float64(n) * 86400
	}
	parsed, _ := time.ParseDuration(duration)
	return parsed.Seconds()
}
