package compose_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const busybox = registry + "/busybox:1.37"

// notesOf lists the installations whose notes the tests read.
func notesOf(t *testing.T) []notesRow {
	t.Helper()
	return []notesRow{
		{
			name: "small", chart: "ringfence", args: environmentArgs(t, "small"),
			want:   []string{"helm -n ringfence test ringfence --logs", "rollout status statefulset/dialer"},
			absent: []string{"enforce=privileged", "docs/sip-trunks"},
		},
		{
			name: "production", chart: "ringfence", args: environmentArgs(t, "production"),
			want:   []string{"namespace ringfence pod-security.kubernetes.io/enforce=privileged", "docs/sip-trunks/README.md"},
			absent: []string{"helm -n ringfence test"},
		},
		{
			name: "console", chart: "console", args: requiredArgs(t, "console"),
			want:   []string{"-- /service invite-operator", "set X-Forwarded-Proto", "consolePort: 8082", consoleURL},
			absent: []string{"helm -n ringfence test"},
		},
		{
			name: "console with a test", chart: "console",
			args: append(requiredArgs(t, "console"), "--set", "test.image="+busybox),
			want: []string{"helm -n ringfence test console --logs"},
		},
		{
			name: "simcarrier", chart: "simcarrier", args: requiredArgs(t, "simcarrier"),
			want: []string{"http://simcarrier:8090", "SIM_TOKEN", "helm -n ringfence test ringfence --logs"},
		},
	}
}

type notesRow struct {
	name, chart  string
	args         []string
	want, absent []string
}

// text returns the text that `helm install` prints for people.
func (r notesRow) text(t *testing.T) string {
	t.Helper()
	if apiServer == nil {
		t.Skip("RINGFENCE_KUBERNETES names no folder: `make charts` builds the programs and runs this")
	}
	args := append([]string{
		"install", r.chart, filepath.Join(root, "helm", r.chart), "--dry-run=server", "--namespace", "ringfence",
		"--kube-apiserver", "https://127.0.0.1:" + apiServer.port, "--kube-token", apiToken,
		"--kube-insecure-skip-tls-verify",
	}, r.args...)
	out, stderr, err := runHelm(t, args...)
	if err != nil {
		t.Fatalf("helm install %s: %v: %s", r.chart, err, stderr)
	}
	_, notes, found := strings.Cut(string(out), "\nNOTES:\n")
	if !found {
		t.Fatalf("the chart %s has no notes", r.chart)
	}
	return notes
}

func TestCharts_NotesNameTheNextSteps(t *testing.T) {
	t.Parallel()
	for _, row := range notesOf(t) {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			text := row.text(t)
			wantContains(t, "notes", text, "in the namespace ringfence. Next steps:")
			for _, want := range row.want {
				wantContains(t, "notes", text, want)
			}
			for _, absent := range row.absent {
				wantNotContains(t, "notes", text, absent)
			}
		})
	}
}

// notedCommand matches a command in the notes, which is indented by five spaces.
var notedCommand = regexp.MustCompile(`(?m)^ {5}((?:kubectl|helm) .*)$`)

// notedCommands returns the commands in the notes of all charts.
func notedCommands(t *testing.T) (found []pageScript) {
	t.Helper()
	for _, row := range notesOf(t) {
		for _, command := range notedCommand.FindAllStringSubmatch(row.text(t), -1) {
			found = append(found, pageScript{place: "notes of " + row.name, text: command[1]})
		}
	}
	if len(found) < 20 {
		t.Errorf("commands in the notes = %d, want at least 20", len(found))
	}
	return found
}

func TestCharts_TestPodsHaveAnImageFromTheOperatorsRegistry(t *testing.T) {
	t.Parallel()
	// Without global.registry, each image.repository can begin with a registry.
	args := append(environmentArgs(t, "small"), "--set", "global.registry=")
	for _, name := range services {
		args = append(args, "--set", name+".image.repository="+registry+"/ringfence/"+name)
	}
	const image = registry + "/tools/simcarrier:1"
	command := []string{"template", "ringfence", filepath.Join(root, "helm/ringfence")}
	_, stderr, err := runHelm(t, append(command, args...)...)
	if err == nil {
		t.Error("a test pod without a registry is rendered, want a refusal")
	}
	wantContains(t, "refusal", stderr, "test.image: the image ringfence/simcarrier:0.1.0 names no registry")
	objects := objectsIn(t, "ringfence", manifests(t, "ringfence", append(args, "--set", "test.image="+image)...))
	containers := objects["Pod/ringfence-test"].Spec.Containers
	if len(containers) != 1 {
		t.Fatalf("containers of the test pod = %d, want 1", len(containers))
	}
	wantEqual(t, "image of the test pod", containers[0].Image, image)
}

// The test of the console needs an image with BusyBox. Without one, the chart has no test.
func TestCharts_ConsoleTestReadsTheSignInPage(t *testing.T) {
	t.Parallel()
	untested := objectsIn(t, "console", manifests(t, "console", requiredArgs(t, "console")...))
	if _, rendered := untested["Pod/console-test"]; rendered {
		t.Error("a test pod without an image is rendered, want none")
	}
	rendered := manifests(t, "console", append(requiredArgs(t, "console"), "--set", "test.image="+busybox,
		"--set", "network.clients[0].podSelector.matchLabels.app=proxy")...)
	validate(t, rendered)
	runTool(t, rendered, "RINGFENCE_KUBESCORE", kubeScoreArgs()...)
	objects := objectsIn(t, "console", rendered)
	containers := objects["Pod/console-test"].Spec.Containers
	if len(containers) != 1 {
		t.Fatalf("containers of the test pod = %d, want 1", len(containers))
	}
	wantEqual(t, "image of the test pod", containers[0].Image, busybox)
	host := []variable{{Name: "CONSOLE_HOST", Value: strings.TrimPrefix(consoleURL, "https://")}}
	wantSlice(t, "variables of the test pod", containers[0].Env, host)
	wantContains(t, "arguments", strings.Join(containers[0].Args, " "), "http://console:8080/sign-in;")
}

// The packages contain files instead of symbolic links, so Helm prints no warning for them.
func TestRelease_PackagedChartsRenderWithoutAWarning(t *testing.T) {
	t.Parallel()
	helm, programs, folder := os.Getenv("RINGFENCE_HELM"), t.TempDir(), t.TempDir()
	if helm == "" {
		t.Skip("RINGFENCE_HELM names no helm: `make charts` builds one and runs this")
	}
	if err := os.Symlink(helm, filepath.Join(programs, "helm")); err != nil {
		t.Fatal(err)
	}
	script := exec.CommandContext(t.Context(), "deploy/release.sh", "charts", folder)
	script.Dir, script.Env = root, append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("release.sh charts: %v: %s", err, out)
	}
	for _, chart := range []string{"ringfence", "console", "simcarrier"} {
		packaged := filepath.Join(folder, chart+"-"+appVersion(t, chart)+".tgz")
		for _, args := range [][]string{{"lint", "--strict", packaged}, {"template", "ringfence", packaged}} {
			out, err := exec.CommandContext(t.Context(), helm, append(args, requiredArgs(t, chart)...)...).CombinedOutput()
			if err != nil {
				t.Errorf("helm %s of the package %s: %v: %s", args[0], chart, err, out)
			}
			wantNotContains(t, "output of helm "+args[0], string(out), linkWarning)
		}
		out, err := exec.CommandContext(t.Context(), helm, append([]string{
			"template", "ringfence", filepath.Join(root, "helm", chart),
		}, requiredArgs(t, chart)...)...).CombinedOutput()
		if err != nil {
			t.Errorf("helm template %s: %v: %s", chart, err, out)
		}
		wantContains(t, "output for the folder "+chart, string(out), linkWarning)
	}
}
