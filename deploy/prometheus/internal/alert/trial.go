package alert

import (
	"fmt"
	"strconv"
	"strings"
)

// An alert's trial in minutes: all is well, then it is ill until it must have fired, then well until it must have gone.
const (
	wellFirst = 16
	ill       = 70
	wellAgain = 70
	// wellPromise is what a ticket about a promise remembers.
	wellPromise = 380
	// step is between two samples; each evaluation of all rules costs.
	step = 2
)

// Trials is the promtool test of a group's alerts: each does not fire while all is well, fires, and goes. rules is the path of the group's rule file.
func Trials(group Group, rules string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Written by `go run ./deploy/prometheus`; the source is deploy/prometheus/internal/alert.\nrule_files: [%s]\nevaluation_interval: %dm\ntests:\n", rules, step)
	for _, a := range group.Alerts {
		again := wellAgain
		if group.Name == promised && a.Severity == Ticket {
			again = wellPromise
		}
		fmt.Fprintf(&out, "  - name: %s (%s)\n    interval: %dm\n    input_series:\n", a.Name, a.Severity, step)
		for _, s := range a.Trial {
			fmt.Fprintf(&out, "      - series: '%s'\n        values: '%s'\n", s.Name, s.values(again))
		}
		out.WriteString("    promql_expr_test:\n")
		for _, at := range []struct{ minute, firing int }{{wellFirst - step, 0}, {wellFirst + ill - step, 1}, {wellFirst + ill + again - step, 0}} {
			fmt.Fprintf(&out, "      - expr: 'count(count by (alertname) (ALERTS{alertname=\"%s\",severity=\"%s\",alertstate=\"firing\"})) or vector(0)'\n        eval_time: %dm\n        exp_samples: [{labels: '{}', value: %d}]\n",
				a.Name, a.Severity, at.minute, at.firing)
		}
	}
	return out.String()
}

// values is the series in promtool's notation: a+bxn are n+1 values.
func (s Series) values(again int) string {
	var parts []string
	last := 0.0
	for _, part := range []struct {
		value   float64
		minutes int
		born    bool
	}{{s.Well, wellFirst, false}, {s.Ill, ill, true}, {s.Well, again, false}} {
		switch {
		case s.Born && !part.born:
			parts = append(parts, fmt.Sprintf("_x%d", part.minutes/step))
		case s.Grows:
			parts = append(parts, fmt.Sprintf("%s+%sx%d", number(last+step*part.value), number(step*part.value), part.minutes/step-1))
			last += part.value * float64(part.minutes)
		default:
			parts = append(parts, fmt.Sprintf("%s+0x%d", number(part.value), part.minutes/step-1))
		}
	}
	return strings.Join(parts, " ")
}

func number(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }
