package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// wantCode checks the exit status of a command.
func wantCode(t *testing.T, command string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: exit status = %d, want %d", command, got, want)
	}
}

// wantText checks a whole text, for example what a command printed.
func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %q, want %q", what, got, want)
	}
}

// wantContains checks a part of a text.
func wantContains(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s = %q, want it to contain %q", what, got, want)
	}
}

// wantOneLine checks that a text has exactly one line.
func wantOneLine(t *testing.T, what, got string) {
	t.Helper()
	if n := strings.Count(got, "\n"); n != 1 {
		t.Errorf("%s = %q, which has %d lines, want 1", what, got, n)
	}
}

// wantNotContains checks that the text got does not contain the text without.
func wantNotContains(t *testing.T, what, got, without string) {
	t.Helper()
	if strings.Contains(got, without) {
		t.Errorf("%s = %q, want it without %q", what, got, without)
	}
}

// wantLines checks the first lines of a table. The number of spaces between two words is not
// compared.
func wantLines(t *testing.T, what, got string, want ...string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(got) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if diff := cmp.Diff(want, lines[:min(len(want), len(lines))]); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
