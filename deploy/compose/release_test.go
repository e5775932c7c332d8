package compose_test

import (
	"fmt"
	"os"
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
		{name: "another version than the charts", tag: "v9.8.7", want: "ersion is " + version + ", and the tag is v9.8.7"},
		{name: "no section in the changelog", tag: "v" + version, want: "CHANGELOG.md has no section"},
	} {
		out, err := release(root, "check", row.tag)
		if err == nil {
			t.Errorf("%s: the check succeeded, want a refusal", row.name)
		}
		wantContains(t, row.name, out, row.want)
	}
	out, err := release(root, "notes", "Unreleased")
	if err != nil {
		t.Errorf("notes: %v: %s", err, out)
	}
	wantContains(t, "notes", out, "### Added")
	wantNotContains(t, "notes", out, "## Unreleased")
}

// Each row changes a repository that is ready for a release.
func TestRelease_CheckFindsWhatIsNotReady(t *testing.T) {
	t.Parallel()
	version := appVersion(t, "gateway")
	section := "## " + version + "\n\n### Added\n\n- Calls.\n\n### Tested\n\n" +
		"- helm upgrade: calls = 230, pages = 95, failed = 0, duration = 41s\n\n"
	changelog := "# Changelog\n\n## Unreleased\n\n" + section + "## 0.0.9\n\n### Tested\n\n- calls = 1, failed = 0\n"
	for _, row := range []struct{ name, file, from, to, want string }{
		{name: "ready", file: "CHANGELOG.md", want: "version=" + version + "\n"},
		{
			name: "no result of the cluster", file: "CHANGELOG.md", from: "### Tested\n\n- helm", to: "- helm",
			want: "section " + version + " of CHANGELOG.md has no result of make test-cluster under ### Tested",
		},
		{
			name: "result without a number of failures", file: "CHANGELOG.md", from: "failed = 0, duration", to: "duration",
			want: "has no result of make test-cluster",
		},
		{
			name: "failed requests", file: "CHANGELOG.md", from: "failed = 0, duration = 41s", want: "requests failed",
			to: "failed = 0, duration = 41s\n- helm rollback: calls = 230, pages = 95, failed = 3, duration = 41s",
		},
		{
			name: "version of a dependency", file: "helm/console/Chart.yaml", from: "    version: " + version,
			to: "    version: 0.0.9", want: "helm/console/Chart.yaml: version of a dependency is 0.0.9",
		},
		{
			name: "version of the library", file: "helm/ringfence-lib/Chart.yaml", from: "version: " + version,
			to: "version: 0.0.9", want: "helm/ringfence-lib/Chart.yaml: version is 0.0.9",
		},
		{
			name: "tag of the example", file: "helm/environments/production.yaml", from: `tag: "` + version,
			to: `tag: "0.0.9`, want: "production.yaml: global.tag is 0.0.9",
		},
		{
			name: "version of an image in the instructions", file: "docs/deploy/helm.md", from: "VERSION=" + version,
			to: "VERSION=0.0.9", want: "helm.md: version of an image or package is 0.0.9",
		},
		{
			name: "version of a package in the instructions", file: "docs/deploy/helm.md", from: "console-" + version,
			to: "console-0.0.9", want: "helm.md: version of an image or package is 0.0.9",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			copied := exec.CommandContext(t.Context(), "sh", "-ec", `mkdir -p "$0/deploy" "$0/docs/deploy" && cp -R helm "$0" &&
				cp deploy/release.sh "$0/deploy" && cp docs/deploy/helm.md "$0/docs/deploy"`, dir)
			copied.Dir = root
			if out, err := copied.CombinedOutput(); err != nil {
				t.Fatalf("cp: %v: %s", err, out)
			}
			rewrite(t, filepath.Join(dir, "CHANGELOG.md"), "", changelog)
			rewrite(t, filepath.Join(dir, row.file), row.from, row.to)
			out, err := release(dir, "check", "v"+version)
			if wantError := row.from != ""; (err != nil) != wantError {
				t.Errorf("error of check = %v, want one: %v", err, wantError)
			}
			wantContains(t, "output of check", out, row.want)
			notes, err := release(dir, "notes", version)
			if err != nil {
				t.Errorf("notes: %v", err)
			}
			if row.from == "" {
				wantEqual(t, "notes", "## "+version+"\n\n"+notes, section)
			}
		})
	}
}

// rewrite replaces a text in a file. If the text to replace is empty, it appends to the file.
func rewrite(t *testing.T, path, from, to string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	changed := string(text) + to
	if from != "" {
		changed = strings.Replace(string(text), from, to, 1)
		if changed == string(text) {
			t.Fatalf("%s does not contain %q", path, from)
		}
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
}

// release runs the script of a repository.
func release(repository string, args ...string) (string, error) {
	cmd := exec.Command("deploy/release.sh", args...)
	cmd.Dir = repository
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
	// The commit of the tag must have passed ci before anything is published.
	var gated struct {
		Jobs map[string]struct {
			Needs       any
			Permissions map[string]string
			Steps       []struct{ Run string }
		}
	}
	parsed(t, ".github/workflows/release.yml", &gated)
	wantEqual(t, "permission of the job check", gated.Jobs["check"].Permissions["actions"], "read")
	wantContains(t, "first command of the job check", gated.Jobs["check"].Steps[1].Run,
		`--workflow ci.yml --commit "$GITHUB_SHA"`)
	for name, job := range gated.Jobs {
		if name != "check" {
			wantContains(t, "needs of the job "+name, fmt.Sprint(job.Needs), "check")
		}
	}
	isThere(t, "the workflow", filepath.Join("deploy", "release.sh"))
}
