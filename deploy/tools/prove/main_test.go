package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const tests = `package a

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGood(t *testing.T) {
	t.Log("RINGFENCE_SEED=7")
	t.Logf("made %s per cent with seed %s", os.Getenv("RINGFENCE_TRIALS"), os.Getenv("RINGFENCE_SEED"))
	t.Run("part", func(t *testing.T) { t.Log("of no interest") })
	if err := os.WriteFile(filepath.Join(os.Getenv("RINGFENCE_REPORTS"), "TestGood.txt"), []byte("a report\nof two lines\n"), 0o600); err != nil {
		t.Error(err)
	}
}

func TestWrong(t *testing.T) { t.Error("one | two") }
`

// folder is a module with one package of tests; the tests run in it.
func folder(t *testing.T, tests string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/a\n\ngo 1.26\n", "a/a_test.go": tests} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	t.Setenv("GOWORK", "off")
}

// cutter breaks the run off when it reads a word.
type cutter struct {
	bytes.Buffer
	word string
	cut  func()
}

func (c *cutter) Write(text []byte) (int, error) {
	if strings.Contains(string(text), c.word) {
		c.cut()
	}
	return c.Buffer.Write(text)
}

func TestProve_BrokenOffItReportsWhatHasEnded(t *testing.T) {
	folder(t, `package a

import (
	"fmt"
	"testing"
)

func TestEnds(t *testing.T) { t.Log("this much is known") }

func TestHangs(t *testing.T) { fmt.Println("it hangs"); select {} }
`)
	ctx, cancel := context.WithCancel(t.Context())
	out := &cutter{word: "it hangs", cut: cancel}
	p := proof{began: time.Now(), packages: "./...", seed: "7", trials: "100"}
	if err := p.prove(ctx, out); err == nil {
		t.Error("a run that was broken off is no proof")
	}
	text := p.text("c", "m")
	for _, want := range []string{": broken off", "| a TestEnds | pass |", "this much is known", "| a TestHangs | never ended |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s\n%s", want, text, out)
		}
	}
	if took := p.ended.Sub(p.began); took > patience {
		t.Errorf("it took %s to end", took)
	}
}

func TestProve_ReportsWhatPassedAndWhatFailed(t *testing.T) {
	report := filepath.Join(t.TempDir(), "PROVED.md")
	folder(t, tests)
	for _, row := range []struct {
		name   string
		args   []string
		passed bool
		want   []string
	}{
		{"all of it", nil, false, []string{"FAILED", "| a TestGood | pass |", "| made 40 per cent with seed 7 |", "| a TestWrong | fail |", `one \| two`, "TestGood:\n\n```\na report\nof two lines\n```"}},
		{"one alone", []string{"-run", "TestGood"}, true, []string{"passed", "- RINGFENCE_SEED=7 RINGFENCE_TRIALS=40, only `-run TestGood`", "| a TestGood | pass |"}},
	} {
		p := proof{began: time.Now(), packages: "./...", args: row.args, seed: "7", trials: "40"}
		var out bytes.Buffer
		if err := p.prove(t.Context(), &out); (err == nil) != row.passed {
			t.Errorf("%s: prove = %v, want passed: %v\n%s", row.name, err, row.passed, &out)
		}
		if err := p.write(t.Context(), report, &out); err != nil {
			t.Errorf("%s: write = %v", row.name, err)
		}
		written, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range row.want {
			if !strings.Contains(string(written), want) {
				t.Errorf("%s: the report lacks %q:\n%s", row.name, want, written)
			}
		}
		for _, not := range []string{"of no interest", "seed 7; RINGFENCE_SEED"} {
			if strings.Contains(string(written), not) {
				t.Errorf("%s: the report has %q:\n%s", row.name, not, written)
			}
		}
		if n := strings.Count(string(written), "\n## "); (n == 2) != row.passed {
			t.Errorf("%s: %d reports in the file", row.name, n)
		}
	}
}
