package compose_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestRelease_ScriptRefusesAnUnknownVersion(t *testing.T) {
	t.Parallel()
	version := appVersion(t, "gateway")
	for _, row := range []struct{ name, tag, want string }{
		{name: "another version than the charts", tag: "v9.8.7", want: "version is " + version + ", and the tag is v9.8.7"},
		{name: "no section in the changelog", tag: "v" + version, want: "CHANGELOG.md has no section"},
	} {
		out, err := release("check", row.tag)
		if err == nil {
			t.Errorf("%s: the check succeeded, want a refusal", row.name)
		}
		wantContains(t, row.name, out, row.want)
	}
	out, err := release("notes", "Unreleased")
	if err != nil {
		t.Errorf("notes: %v: %s", err, out)
	}
	wantContains(t, "notes", out, "### Added")
	wantNotContains(t, "notes", out, "## Unreleased")
}

func release(args ...string) (string, error) {
	cmd := exec.Command("deploy/release.sh", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestRelease_WorkflowPublishesEveryImage(t *testing.T) {
	t.Parallel()
	var workflow struct {
		Jobs map[string]struct {
			Strategy struct{ Matrix struct{ Service []string } }
		}
	}
	parsed(t, ".github/workflows/release.yml", &workflow)
	published := workflow.Jobs["images"].Strategy.Matrix.Service
	same(t, "published images", published, append([]string{"simcarrier", "console"}, services...))
	text := strings.Join(lines(t, ".github/workflows/release.yml"), "\n")
	for _, match := range regexp.MustCompile(`deploy/release\.sh (\w+)`).FindAllStringSubmatch(text, -1) {
		wantContains(t, "deploy/release.sh", strings.Join(lines(t, "deploy/release.sh"), "\n"), `"`+match[1]+` argument")`)
	}
	for argument := range strings.SplitSeq("SERVICE VERSION REVISION SOURCE", " ") {
		wantContains(t, "workflow", text, argument+"=${{")
		wantContains(t, "deploy/Dockerfile", strings.Join(lines(t, "deploy/Dockerfile"), "\n"), "\nARG "+argument)
	}
	isThere(t, "the workflow", filepath.Join("deploy", "release.sh"))
}
