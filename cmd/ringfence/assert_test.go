package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func wantCode(t *testing.T, command string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: exit status = %d, want %d", command, got, want)
	}
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %q, want %q", what, got, want)
	}
}

func wantContains(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s = %q, want it to contain %q", what, got, want)
	}
}

func wantOneLine(t *testing.T, what, got string) {
	t.Helper()
	if n := strings.Count(got, "\n"); n != 1 {
		t.Errorf("%s = %q, which has %d lines, want 1", what, got, n)
	}
}

func wantNotContains(t *testing.T, what, got, without string) {
	t.Helper()
	if strings.Contains(got, without) {
		t.Errorf("%s = %q, want it without %q", what, got, without)
	}
}

// wantLines compares the first lines of got with want. Each run of spaces counts as one space.
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
