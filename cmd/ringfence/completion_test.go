package main

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestCompletion_PrintsCandidates(t *testing.T) {
	t.Setenv("RINGFENCE_ADMIN_URL", "")
	t.Setenv("RINGFENCE_HOME", t.TempDir())
	for _, test := range []struct {
		line     string
		want     []string // all expected completions
		contains []string // some of the expected completions
	}{
		{"ringfence wor", []string{"workspaces"}, nil},
		{"ringfence ", nil, []string{"demo", "calls", "opt-outs", "services"}},
		{"ringfence calls w", []string{"why"}, nil},
		{"ringfence -o ", []string{"json", "table", "wide"}, nil},
		{"ringfence keys list --al", []string{"--all"}, nil},
		{"ringfence services parked dia", []string{"dialer"}, nil},
		{"ringfence completion ", []string{"bash", "fish", "zsh"}, nil},
		{"ringfence dance ", nil, nil},
	} {
		t.Setenv("COMP_LINE", test.line+" behind the cursor")
		t.Setenv("COMP_POINT", strconv.Itoa(len(test.line)))
		code, out, faults := runCommand(t)
		candidates := strings.Fields(out)
		slices.Sort(candidates)
		candidates = slices.Compact(candidates)
		wantCode(t, test.line, code, 0)
		wantText(t, "stderr of "+test.line, faults, "")
		if test.want != nil && !slices.Equal(candidates, test.want) {
			t.Errorf("completions of %q = %q, want %q", test.line, candidates, test.want)
		}
		for _, want := range test.contains {
			if !slices.Contains(candidates, want) {
				t.Errorf("completions of %q = %q, want %q among them", test.line, candidates, want)
			}
		}
	}
}

func TestCompletion_ScriptsHaveValidSyntax(t *testing.T) {
	for shell, wants := range map[string]string{"bash": " ringfence\n", "zsh": "#compdef ringfence", "fish": "complete -f -c ringfence"} {
		code, script, faults := runCommand(t, "completion", shell)
		wantCode(t, "completion "+shell, code, 0)
		wantText(t, "stderr of completion "+shell, faults, "")
		wantContains(t, "completion "+shell, script, wants)
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		if output, err := exec.Command(shell, "-n", "-c", script).CombinedOutput(); err != nil { //nolint:gosec
			t.Errorf("%s refuses %q: %v %s", shell, script, err, output)
		}
	}
	code, _, faults := runCommand(t, "completion", "powershell")
	wantCode(t, "completion powershell", code, 2)
	wantContains(t, "stderr", faults, "must be one of")
}
