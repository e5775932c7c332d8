package prometheus_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sourceText contains the source text with which the tests compare the runbooks and rules.
type sourceText struct {
	files       map[string]string
	goText      string
	sqlText     string          // the text of the migrations
	literals    map[string]bool // every string literal in the Go files
	panelTitles map[string]bool // the title of every panel in the dashboards
	runNames    map[string]bool // every make target as `make x`, every test name, and every prefix of a test name
}

func source(t *testing.T) sourceText { //nolint:gocognit // the function has one step for each kind of file
	t.Helper()
	c := sourceText{
		files: map[string]string{}, literals: map[string]bool{},
		panelTitles: map[string]bool{}, runNames: map[string]bool{},
	}
	tree := os.DirFS("../..")
	quoted := regexp.MustCompile(`"([^"\s]*)"`)
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, root := range []string{"libs", "services", "proto/openapi", "test"} {
		err := fs.WalkDir(tree, root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() || !slices.Contains([]string{".go", ".sql"}, filepath.Ext(path)) {
				return nil
			}
			text, err := fs.ReadFile(tree, path)
			if filepath.Ext(path) == ".sql" {
				c.sqlText += string(text)
				return err
			}
			if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/") {
				for _, name := range test.FindAllStringSubmatch(string(text), -1) {
					subject, _, _ := strings.Cut(name[1], "_")
					c.runNames[name[1]], c.runNames[subject] = true, true
				}
				return err
			}
			c.files[path] = string(text)
			for _, word := range quoted.FindAllStringSubmatch(string(text), -1) {
				c.literals[word[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	targets, err := fs.ReadFile(tree, "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(string(targets), -1) {
		c.runNames["make "+name[1]] = true
	}
	c.goText = strings.Join(slices.Collect(maps.Values(c.files)), "\n")
	boards, err := filepath.Glob("../grafana/dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range boards {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, title := range regexp.MustCompile(`"title": "([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
			c.panelTitles[title[1]] = true
		}
	}
	return c
}

// hasRoute reports whether a Go file contains a route with this path. The file can split the path
// into a prefix and a rest.
func (c sourceText) hasRoute(path string) bool {
	if strings.HasPrefix(path, "/debug/pprof/") {
		return c.literals["/debug/pprof/"]
	}
	pattern := regexp.MustCompile(`\\\$[A-Z]+`).ReplaceAllString(regexp.QuoteMeta(path), `\{[a-z_0-9]+\}`)
	pieces := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	for _, text := range c.files {
		if regexp.MustCompile(`"` + pattern + `"`).MatchString(text) {
			return true
		}
		for i := 1; i <= len(pieces); i++ {
			front, back := "/"+strings.Join(pieces[:i], "/"), "/"+strings.Join(pieces[i:], "/")
			if regexp.MustCompile(`Route\("`+front+`"`).MatchString(text) && regexp.MustCompile(`\("`+back+`"`).MatchString(text) {
				return true
			}
		}
	}
	return false
}

var (
	noise  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\{[^}]*\}|(?:by|on|without|ignoring|group_left|group_right) ?\([^)]*\)`)
	names  = regexp.MustCompile(`[a-z][a-z0-9_:]*_[a-z0-9_:]+\b`)
	called = regexp.MustCompile(`[a-z_]+\s*\(`)
)

// unknownMetrics returns the metrics of a query that the code does not register. The metrics of the
// Go runtime, of the process and of kgo count as registered.
func (c sourceText) unknownMetrics(query string) (missing []string) {
	query = called.ReplaceAllString(noise.ReplaceAllString(query, " "), "(")
	for _, name := range names.FindAllString(query, -1) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if !c.knowsName(name) {
			missing = append(missing, name)
		}
	}
	return missing
}

func (c sourceText) inMigrations(name string) bool {
	return regexp.MustCompile(`\b` + name + `\b`).MatchString(c.sqlText)
}

func (c sourceText) knowsName(name string) bool {
	for _, prefix := range []string{"go_", "process_", "slo:", "kafka_produce_", "kafka_fetch_", "kafka_connects_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	if c.literals[name] {
		return true
	}
	for i := range name {
		if name[i] == '_' && c.literals[name[:i+1]] && c.literals[name[i+1:]] {
			return true
		}
	}
	return false
}

var (
	fenced  = regexp.MustCompile("(?s)```.*?```")
	quoted  = regexp.MustCompile("`([^`\n]+)`")
	logged  = regexp.MustCompile(`^[a-z][a-z0-9' .,:;-]* [a-z0-9' .,:;-]*[a-z]$`)
	command = regexp.MustCompile(`^(?:kubectl|ringfence|sudo) `)
	run     = regexp.MustCompile(`(?m)\bmake [a-z-]+$|\bTest[A-Z]\w+`)
	request = regexp.MustCompile(`\b(?:GET|POST|PUT|PATCH|DELETE) (/[\w/{}-]+)`)
	path    = regexp.MustCompile(`^(?:deploy|helm|libs|proto|services)/[\w./-]+$`)
	field   = regexp.MustCompile(`^[a-z]+(_[a-z0-9]+)+$`)
	setting = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(_[A-Z0-9]+)+\b`)
	panel   = regexp.MustCompile(`(?:^|[^*])\*([A-Z0-9][^*\n]*)\*(?:[^*]|$)`)
)

// unknownNames returns the names in a runbook that do not exist: log lines, fields, settings,
// panels, routes, paths, tests and make targets.
func (c sourceText) unknownNames(page string) (words []string) {
	page = fenced.ReplaceAllString(page, "")
	for _, found := range quoted.FindAllStringSubmatch(page, -1) {
		text := found[1]
		if path.MatchString(text) {
			if _, err := os.Stat("../../" + text); err != nil {
				words = append(words, text)
			}
		}
		inGo := strings.Contains(c.goText, `"`+text)
		if logged.MatchString(text) && !command.MatchString(text) && !run.MatchString(text) && !inGo {
			words = append(words, text)
		}
		if field.MatchString(text) && !c.knowsName(text) && !inGo && !c.inMigrations(text) {
			words = append(words, text)
		}
	}
	for _, name := range setting.FindAllString(page, -1) {
		if !strings.Contains(c.goText, name) && !strings.HasPrefix(name, "RINGFENCE_") {
			words = append(words, name)
		}
	}
	for _, name := range run.FindAllString(strings.ReplaceAll(page, "`", "\n"), -1) {
		if !c.runNames[name] {
			words = append(words, name)
		}
	}
	for _, found := range request.FindAllStringSubmatch(page, -1) {
		if !c.hasRoute(regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(found[1], "$$ID")) {
			words = append(words, found[0])
		}
	}
	for _, found := range panel.FindAllStringSubmatch(page, -1) {
		if !c.panelTitles[found[1]] {
			words = append(words, found[1])
		}
	}
	return words
}
