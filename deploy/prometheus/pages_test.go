package prometheus_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/test/kit"
)

const runbooks = "../../docs/runbooks/"

func TestRunbooks_EachAlertHasARunbook(t *testing.T) {
	t.Parallel()
	var alerts []string
	for _, groups := range loadRules(t) {
		for _, a := range kit.Alerts(groups) {
			alerts = append(alerts, a.Alert)
		}
	}
	slices.Sort(alerts)
	// An alert can have two rules with the same name: one with the severity page and one with the
	// severity ticket.
	alerts = slices.Compact(alerts)
	var pages []string
	for name, text := range pagesOf(t) {
		if name[0] >= 'A' && name[0] <= 'Z' && name != "README.md" {
			pages = append(pages, strings.TrimSuffix(name, ".md"))
			if want := "# " + strings.TrimSuffix(name, ".md") + "\n"; !strings.HasPrefix(text, want) {
				t.Errorf("%s does not begin with %q", name, want)
			}
			for _, want := range []string{
				"\n## Meaning\n", "\n## Impact\n", "\n## Diagnosis\n", "\n## Remedy\n", "\n**Escalate.** ", "\n```sh\n",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("%s has no %q", name, want)
				}
			}
		}
		for _, link := range regexp.MustCompile(`\]\(([A-Za-z-]+\.md)\)`).FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(runbooks + link[1]); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, link[1])
			}
		}
	}
	slices.Sort(pages)
	if !slices.Equal(alerts, pages) {
		t.Errorf("alerts %v\nrunbooks %v", alerts, pages)
	}
}

func pagesOf(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob(runbooks + "*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(path)] = string(text)
	}
	return pages
}

func blocks(text, kind string) (lines []string) {
	for _, found := range regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.Split(strings.TrimSpace(found[1]), "\n")...)
	}
	return lines
}

// commandForms match the commands of the runbooks. A test in cmd/ringfence parses the ringfence
// commands.
var commandForms = []*regexp.Regexp{
	regexp.MustCompile(`^(alias )?ringfence[ =]`),
	regexp.MustCompile(`^logs\(\) \{ .* \}$`),
	regexp.MustCompile(`^logs [a-z-]+ \| grep '[^']+'$`),
	regexp.MustCompile(`^curl -s `),
	regexp.MustCompile(`^kubectl (-n ringfence|drain|cordon|uncordon|get pods -A) `),
	regexp.MustCompile(`^helm (rollback|upgrade) ringfence `),
	regexp.MustCompile(`^docker compose (cp|exec|restart|up) `),
	regexp.MustCompile(`^psql "\$(DB|STANDBY)" -c ".*"$|^pg_isready -d "\$DB"$`),
	regexp.MustCompile(`^kafka-(topics|configs|consumer-groups)\.sh --bootstrap-server "\$KAFKA" --`),
	regexp.MustCompile(`^ssh [A-Z]+ (sudo systemctl (restart|start|stop) [a-z]+|timedatectl|df -h)$`),
	regexp.MustCompile(`^openssl x509 -in `),
}

func TestRunbooks_EveryCommandExists(t *testing.T) {
	t.Parallel()
	src := source(t)
	for name, text := range pagesOf(t) {
		if name[0] < 'A' || name[0] > 'Z' {
			continue
		}
		for _, line := range blocks(text, "sh") {
			if fault := commandFault(t, src, line); fault != "" {
				t.Errorf("%s: %q: %s", name, line, fault)
			}
		}
	}
	for _, wrong := range []string{
		"rm -r /", `curl -s "$PRIVATE/moon"`, "logs moon | grep 'outbox lease not released'",
		"logs calls | grep 'the moon fell'", "kubectl -n ringfence rollout restart deployment/dialer",
		`psql "$DB" -c "SELECT * FROM calls.moons"`,
	} {
		if commandFault(t, src, wrong) == "" {
			t.Errorf("%q was accepted, want an error", wrong)
		}
	}
}

var (
	requested = regexp.MustCompile(`^curl .*"\$(?:BASE|PRIVATE)(/[^"?]*)`)
	workload  = regexp.MustCompile(`\b(deployment|statefulset)/([a-z-]+)`)
	searched  = regexp.MustCompile(`^logs ([a-z-]+) \| grep '([^']+)'$`)
	table     = regexp.MustCompile(
		`\b(gateway|calls|contacts_compliance|dialer|billing_wallet|webhook_dispatcher)\.([a-z_]+)\b`)
)

// commandFault returns what is wrong with a command of a runbook: its form, its HTTP route, the
// kind of its workload, its log line or its table. It returns "" if the command is right.
func commandFault(t *testing.T, src sourceText, line string) string {
	t.Helper()
	matches := func(form *regexp.Regexp) bool { return form.MatchString(line) }
	if !slices.ContainsFunc(commandForms, matches) {
		return "no known form of a command"
	}
	if found := requested.FindStringSubmatch(line); found != nil && !src.hasRoute(found[1]) {
		return found[1] + " is not a route"
	}
	for _, found := range workload.FindAllStringSubmatch(line, -1) {
		if kind := chartKind(found[2]); kind != found[1] {
			return fmt.Sprintf("the kind of %s is %q", found[2], kind)
		}
	}
	if found := searched.FindStringSubmatch(line); found != nil {
		if chartKind(found[1]) == "" {
			return found[1] + " is not a service"
		}
		if !strings.Contains(src.goText, `"`+found[2]) {
			return "no service writes this log line"
		}
	}
	if strings.HasPrefix(line, "psql ") {
		for _, found := range table.FindAllStringSubmatch(line, -1) {
			if !schemaCreates(t, found[1], found[2]) {
				return found[0] + " is not a table"
			}
		}
	}
	return ""
}

// chartKind returns the kind of the workload in a service's chart in lower case, or "" if there is
// no such chart.
func chartKind(service string) string {
	text, err := os.ReadFile("../../helm/" + service + "/values.yaml")
	if err != nil {
		return ""
	}
	found := regexp.MustCompile(`(?m)^kind: (\w+)$`).FindSubmatch(text)
	if found == nil {
		return ""
	}
	return strings.ToLower(string(found[1]))
}

// The test searches the code for each log line, setting, field, route, path and test of a runbook,
// and the dashboards for each panel.
func TestRunbooks_NamedSettingsAndRoutesExistInTheCode(t *testing.T) {
	t.Parallel()
	src := source(t)
	for name, text := range pagesOf(t) {
		if name == "README.md" {
			continue
		}
		for _, word := range src.unknownNames(text) {
			if !strings.HasPrefix(name, "postgres-") {
				t.Errorf("%s names %q, which does not exist in the code", name, word)
			} else if !slices.Contains(postgresNames, word) {
				t.Errorf("ofPostgres does not contain %v of %s", word, name)
			}
		}
	}
	const wrong = "The log lines `the moon fell into the sea` and `it fell: 2 moons, all of them`, and `moon_phase`; set MOON_PHASE; see the panel *Moons*, GET /v1/moons/{id}, `libs/moon`, TestMoon and `make moon`.\n"
	if found := src.unknownNames(wrong); len(found) != 9 {
		t.Errorf("unknown words found = %q, want nine", found)
	}
}
