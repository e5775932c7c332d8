package alerts

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"ringfence.dev/test/kit"
)

const (
	// hourDivisor divides every duration in the rules: an hour becomes a minute.
	hourDivisor = 60
	// dayDivisor divides the durations of the alerts that measure days: an hour becomes six
	// seconds.
	dayDivisor = 600
)

func loadRules(t *testing.T) map[string][]kit.RuleGroup {
	t.Helper()
	files, err := kit.LoadRules("../../deploy/prometheus/rules")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// shortRules writes the rules with shorter durations into dir, as rules-*.yml. It writes the
// recording rules of an SLO twice. The durations of the second copy are divided by dayDivisor, and
// its series have the prefix slo:days:. The rules of tickets use these series.
func shortRules(t *testing.T, dir string) {
	t.Helper()
	var days []kit.RuleGroup
	for name, groups := range loadRules(t) {
		var hours []kit.RuleGroup
		for _, group := range groups {
			short, long := group, group
			short.Rules, long.Rules = nil, nil
			for _, rule := range group.Rules {
				if rule.Record != "" || !strings.Contains(rule.Expr, "slo:errors:ratio_3d") {
					short.Rules = append(short.Rules, shorten(rule, hourDivisor))
				}
				if rule.Record != "" || strings.Contains(rule.Expr, "slo:errors:ratio_3d") {
					rule = shorten(rule, dayDivisor)
					rule.Record = strings.ReplaceAll(rule.Record, "slo:", "slo:days:")
					rule.Expr = strings.ReplaceAll(rule.Expr, "slo:", "slo:days:")
					long.Rules = append(long.Rules, rule)
				}
			}
			hours = append(hours, short)
			if len(long.Rules) > 0 {
				days = append(days, long)
			}
		}
		keepRules(t, filepath.Join(dir, "rules-"+name+".yml"), hours)
	}
	keepRules(t, filepath.Join(dir, "rules-days.yml"), days)
}

func keepRules(t *testing.T, path string, groups []kit.RuleGroup) {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{"groups": groups})
	if err != nil {
		t.Fatal(err)
	}
	keep(t, path, string(text))
}

var (
	ranges  = regexp.MustCompile(`\[(\d+[smhd])\]`)
	offsets = regexp.MustCompile(`\boffset \d+[smhd]\b`)
	// bounds matches a duration, in seconds, in the condition of a rule. The rules write such a
	// duration as a product, for example 3 * 3600.
	bounds = regexp.MustCompile(`\b(\d+) \* (60|3600|86400)\b`)
)

// shorten divides every duration of a rule. A range is at least four seconds, because rate() needs
// several scrapes.
func shorten(rule kit.Rule, divisor int) kit.Rule {
	divide := func(duration string, least time.Duration) string {
		n, _ := strconv.Atoi(duration[:len(duration)-1])
		units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
		unit := units[duration[len(duration)-1]]
		short := max(time.Duration(n)*unit/time.Duration(divisor), least)
		return strconv.FormatInt(short.Milliseconds(), 10) + "ms"
	}
	rule.Expr = ranges.ReplaceAllStringFunc(rule.Expr, func(found string) string {
		return "[" + divide(found[1:len(found)-1], 4*time.Second) + "]"
	})
	rule.Expr = offsets.ReplaceAllStringFunc(rule.Expr, func(found string) string {
		return "offset " + divide(strings.TrimPrefix(found, "offset "), 4*time.Second)
	})
	rule.Expr = bounds.ReplaceAllString(rule.Expr, "$1 * $2 / "+strconv.Itoa(divisor))
	if rule.For != "" {
		rule.For = divide(rule.For, time.Second)
	}
	return rule
}

func TestShorten_DividesDurations(t *testing.T) {
	t.Parallel()
	got := shorten(kit.Rule{
		Expr: `max(age_seconds) > 3 * 3600 and rate(x_total[1h]) > rate(y_total[2m] offset 1h)`, For: "10m",
	}, hourDivisor)
	want := `max(age_seconds) > 3 * 3600 / 60 and rate(x_total[60000ms]) > rate(y_total[4000ms] offset 60000ms)`
	if got.Expr != want {
		t.Errorf("expr = %s, want %s", got.Expr, want)
	}
	if want := "10000ms"; got.For != want {
		t.Errorf("for = %s, want %s", got.For, want)
	}
}
