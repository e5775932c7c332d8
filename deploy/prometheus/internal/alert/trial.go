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

// Trials is the promtool test of a group's alerts: each does not fire while all is well, fires, and goes; what only looks like it is left alone; none fires while
// nothing goes on, and of nothing told at all those tell that are there for it. rules is the path of the group's rule file.
func Trials(group Group, rules string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Written by `go run ./deploy/prometheus`; the source is deploy/prometheus/internal/alert.\nrule_files: [%s]\nevaluation_interval: %dm\ntests:\n", rules, step)
	for _, a := range group.Alerts {
		again := wellAgain
		if group.Name == promised && a.Severity == Ticket && !a.Absent {
			again = wellPromise
		}
		named := fmt.Sprintf("%s (%s)", a.Name, a.Severity)
		begin(&out, named)
		for _, s := range a.Trial {
			s.write(&out, s.values(again))
		}
		a.expected(&out, []moment{{wellFirst - step, 0}, {wellFirst + ill - step, 1}, {wellFirst + ill + again - step, 0}})
		if len(a.Calm) > 0 {
			begin(&out, named+", what only looks like it")
			for _, s := range a.Calm {
				s.write(&out, s.values(wellAgain))
			}
			a.expected(&out, []moment{{wellFirst + step, 0}, {wellFirst + ill/2 + 1, 0}, {wellFirst + ill - step, 0}, {wellFirst + ill + wellAgain - step, 0}})
		}
	}
	group.standing(&out)
	group.silent(&out)
	return out.String()
}

func begin(out *strings.Builder, name string) {
	fmt.Fprintf(out, "  - name: %s\n    interval: %dm\n    input_series:\n", name, step)
}

func (s Series) write(out *strings.Builder, values string) {
	fmt.Fprintf(out, "      - series: '%s'\n        values: '%s'\n", s.Name, values)
}

// moment is whether an alert fires at a minute.
type moment struct{ minute, firing int }

func (a Alert) expected(out *strings.Builder, moments []moment) {
	out.WriteString("    promql_expr_test:\n")
	for _, at := range moments {
		fmt.Fprintf(out, "      - expr: 'count(count by (alertname) (ALERTS{alertname=\"%s\",severity=\"%s\",alertstate=\"firing\"})) or vector(0)'\n        eval_time: %dm\n        exp_samples: [{labels: '{}', value: %d}]\n",
			a.Name, a.Severity, at.minute, at.firing)
	}
}

const firing = "    promql_expr_test:\n      - expr: 'group by (alertname) (ALERTS{alertstate=\"firing\"})'\n        eval_time: %dm\n        exp_samples: [%s]\n"

// standing is a house in which nobody calls: every counter stands, every gauge is well.
func (g Group) standing(out *strings.Builder) {
	begin(out, "nothing goes on")
	written := map[string]bool{}
	for _, a := range g.Alerts {
		for _, s := range a.Trial {
			if written[s.Name] || s.Born {
				continue
			}
			written[s.Name] = true
			if s.Grows {
				s.Well = 0
			}
			s.write(out, fmt.Sprintf("%s+0x%d", number(s.Well), ill))
		}
	}
	fmt.Fprintf(out, firing, step*ill, "")
}

// silent is a Prometheus that is told nothing.
func (g Group) silent(out *strings.Builder) {
	begin(out, "nothing is told")
	var told []string
	for _, a := range g.Alerts {
		if a.Absent {
			told = append(told, fmt.Sprintf(`{labels: '{alertname="%s"}', value: 1}`, a.Name))
		}
	}
	fmt.Fprintf(out, firing, step*ill, strings.Join(told, ", "))
}

// values is the series in promtool's notation: a+bxn are n+1 values.
func (s Series) values(again int) string {
	var parts []string
	last := 0.0
	for _, part := range []struct {
		value   float64
		minutes int
		ill     bool
	}{{s.Well, wellFirst, false}, {s.Ill, ill, true}, {s.Well, again, false}} {
		count := part.minutes / step
		switch {
		case s.Born && !part.ill, s.Gone && part.ill:
			parts = append(parts, fmt.Sprintf("_x%d", count))
		case s.Once && part.ill:
			last += step * part.value
			parts = append(parts, fmt.Sprintf("%s+0x%d", number(last), count-1))
		case s.Grows:
			parts = append(parts, fmt.Sprintf("%s+%sx%d", number(last+step*part.value), number(step*part.value), count-1))
			last += part.value * float64(part.minutes)
		default:
			parts = append(parts, fmt.Sprintf("%s+0x%d", number(part.value), count-1))
		}
	}
	return strings.Join(parts, " ")
}

func number(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }
