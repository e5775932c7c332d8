package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const tests = `package a

import "testing"

func FuzzGood(f *testing.F) { f.Fuzz(func(*testing.T, string) {}) }

func FuzzWrong(f *testing.F) {
	f.Add("a")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1 {
			t.Error("too long")
		}
	})
}
`

func module(t *testing.T, source string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/a\n\ngo 1.26\n", "a/a_test.go": source, "b/b.go": "package b\n\n// func Fuzz\n"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	return root
}

func TestRun_StopsAtTheFirstFailureAndSaysWhere(t *testing.T) {
	root := module(t, tests)
	var out strings.Builder
	const each = 4 * time.Second
	wantRun := func(pattern string, wantPassed, wantFailed int) {
		t.Helper()
		passed, failed, err := run(t.Context(), []string{root}, each, pattern, &out)
		if err != nil {
			t.Errorf("run of %q: %v", pattern, err)
		}
		if passed != wantPassed {
			t.Errorf("run of %q: passed = %d, want %d", pattern, passed, wantPassed)
		}
		if failed != wantFailed {
			t.Errorf("run of %q: failed = %d, want %d", pattern, failed, wantFailed)
		}
	}
	wantRun("", 1, 1)
	said := out.String()
	for _, want := range []string{"2 targets", "1/2 FuzzGood", "2/2 FuzzWrong FAILED", "too long", filepath.Join("testdata", "fuzz", "FuzzWrong"), "go test -run '^FuzzWrong$'"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said:\n%s", want, said)
		}
	}
	crashers, err := filepath.Glob(filepath.Join(root, "a", "testdata", "fuzz", "FuzzWrong", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(crashers) != 1 {
		t.Errorf("crashers = %v, want one", crashers)
	}
	wantRun("Good", 1, 0)
}

func TestRun_NothingFoundIsAFault(t *testing.T) {
	root := module(t, "package a\n")
	if _, _, err := run(t.Context(), []string{root}, time.Second, "", &strings.Builder{}); err == nil {
		t.Error("a tree without targets was taken for one that passed")
	}
}
