package compose_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/test/kit"
)

// inlineCommand matches a command in the text of a page.
var inlineCommand = regexp.MustCompile("`((?:kubectl|docker compose|helm (?:rollback|uninstall)) [^`]+)`")

// TestDeployDocs_CommandsMatchTheCharts runs the commands of docs/deploy, the container commands of
// the runbooks, and the commands that the charts print after an installation. A fake program
// replaces docker, kubectl, curl and bin/ringfence, and records its arguments.
func TestDeployDocs_CommandsMatchTheCharts(t *testing.T) {
	t.Parallel()
	bin := os.Getenv("RINGFENCE_BIN")
	if bin == "" || testing.Short() {
		t.Skip("RINGFENCE_BIN is not set, or -short: run `make charts`, which builds the programs and sets it")
	}
	for _, program := range []string{"openssl", "jq", "psql"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") != "true" {
			t.Skipf("SKIPPED: docs/deploy/helm.md needs %s", program)
		}
	}
	c := newClone(t, bin)
	blocks, err := kit.PageBlocks(root, kit.DeployTest)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		c.run(b.String(), b.Text)
	}
	for _, script := range containerCommands(t) {
		c.run(script.place, script.text)
	}
	for place, command := range inlineCommands(t) {
		c.run(place, command)
	}
	for _, script := range notedCommands(t) {
		c.run(script.place, script.text)
	}
	if len(c.recorded) < 25 {
		t.Errorf("recorded commands = %d, want at least 25: %q", len(c.recorded), c.recorded)
	}
	objects := render(t, "ringfence", "--values", filepath.Join(root, "helm/environments/production.yaml"))
	for _, chart := range []string{"console", "simcarrier"} {
		maps.Copy(objects, objectsIn(t, chart, manifests(t, chart, requiredArgs(t, chart)...)))
	}
	c.checkKubectl(objects)
	c.checkDocker()
}

// pageScript is the text of commands and the place of the text in a page.
type pageScript struct{ place, text string }

// containerCommands returns the commands of the runbooks for kubectl, docker and helm.
func containerCommands(t *testing.T) (found []pageScript) {
	t.Helper()
	blocks, err := kit.PageBlocks(root, kit.OperatorTest)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		for line := range strings.Lines(b.Text) {
			if program, _, _ := strings.Cut(line, " "); slices.Contains([]string{"kubectl", "docker", "helm"}, program) {
				found = append(found, pageScript{place: b.String(), text: line})
			}
		}
	}
	return found
}

// inlineCommands returns the commands in the text of all pages, by their place. It omits commands
// with a placeholder, which is a word in capitals or in braces.
func inlineCommands(t *testing.T) map[string]string {
	t.Helper()
	found, placeholder := map[string]string{}, regexp.MustCompile(`[{}…<>]|\b[A-Z]+\b`)
	for _, folder := range []string{"docs", "helm", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".md" {
				return err
			}
			text, err := os.ReadFile(name)
			for _, command := range inlineCommand.FindAllStringSubmatch(string(text), -1) {
				if !placeholder.MatchString(command[1]) {
					found[name+": "+command[1]] = command[1]
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// clone is a folder with the files of the repository that the pages use. The commands write to the
// folder `made` beside this folder.
type clone struct {
	t   *testing.T
	dir string
	env []string
	// recorded contains the command lines that the fake programs received.
	recorded []recordedCommand
}

type recordedCommand struct {
	place string
	words []string
}

// cloneSource is the address of the repository from which the clone comes.
const cloneSource = "https://git.example.net/ringfence.git"

const (
	// fake appends its arguments to a file as a JSON array. It also prints a log line, because
	// runbooks filter the logs that kubectl prints.
	fake = `#!/bin/sh
jq -nc '$ARGS.positional' --args -- %[1]s "$@" >> %[2]s
echo '{"level":"WARN"}'
`
	// fakeHelm renders the charts instead of installing them.
	fakeHelm = `#!/bin/sh
case "$1 $2" in
"upgrade --install") shift 2 ;;
"upgrade "*) shift ;;
"package "*) exec %[1]s "$@" ;;
"-n "*) test -d "helm/$4/templates/tests" && exec %[1]s "$3" --help ;; # helm -n NAMESPACE test CHART
"rollback "* | "uninstall "*) exec %[1]s "$1" --help ;;
esac
exec %[1]s template "$@"
`
)

func newClone(t *testing.T, bin string) *clone {
	t.Helper()
	helm := os.Getenv("RINGFENCE_HELM")
	if helm == "" {
		t.Skip("RINGFENCE_HELM names no helm: `make charts` builds one and runs this")
	}
	server, err := kit.StartPostgres(bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	conn := connected(t, in(t, server.URL, "postgres", "", ""))
	super := conn.Config()
	// the commands of the page create this database, so it must not exist yet
	if _, err := conn.Exec(t.Context(), "DROP DATABASE IF EXISTS ringfence WITH (FORCE)"); err != nil {
		t.Fatal(err)
	}
	above := t.TempDir()
	c := &clone{t: t, dir: filepath.Join(above, "clone")}
	clone := exec.CommandContext(t.Context(), "sh", "-ec",
		`git init -q "$0" && cd "$0" && git remote add origin `+cloneSource+`
		git -c user.name=test -c user.email=test@example.net commit -q --allow-empty -m test`, c.dir)
	if out, err := clone.CombinedOutput(); err != nil {
		t.Fatalf("git: %v: %s", err, out)
	}
	programs := filepath.Join(above, "programs")
	for _, dir := range []string{filepath.Join(c.dir, "bin"), programs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"helm", "deploy"} {
		target, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"docker", "kubectl", "curl", "ssh", "kafka-topics.sh"} {
		c.write(filepath.Join(programs, program), fmt.Sprintf(fake, program, c.log()))
	}
	c.write(filepath.Join(c.dir, "bin/ringfence"), fmt.Sprintf(fake, "ringfence", c.log()))
	c.write(filepath.Join(programs, "helm"), fmt.Sprintf(fakeHelm, helm))
	for _, name := range []string{"sip.crt", "sip.key"} {
		c.write(filepath.Join(c.dir, name), name)
	}
	c.write(filepath.Join(c.dir, "production.yaml"), strings.Join(lines(t, "helm/environments/production.yaml"), "\n"))
	_, authorityText := authority(t)
	c.write(filepath.Join(c.dir, "postgres-ca.pem"), string(authorityText))
	c.env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "PGHOST="+super.Host,
		fmt.Sprintf("PGPORT=%d", super.Port), "PGUSER="+super.User, "PGPASSWORD="+super.Password,
		"DB="+server.URL, "STANDBY="+server.URL, "KAFKA=localhost:9092")
	return c
}

func (c *clone) log() string { return filepath.Join(filepath.Dir(c.dir), "commands.json") }

func (c *clone) write(path, text string) {
	c.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // some of the files are programs
		c.t.Fatal(err)
	}
}

// psqlFunction lets the promotion of a standby succeed on a server that is no standby.
const psqlFunction = `
psql() {
	command psql "$@" 2> psql.err || grep "recovery is not in progress" psql.err || { cat psql.err >&2; return 1; }
}
`

// run runs a script in the clone and reads the commands that the fake programs received.
func (c *clone) run(place, script string) {
	c.t.Helper()
	script = strings.ReplaceAll(script, "<operator token>", "token")
	if err := os.RemoveAll(c.log()); err != nil {
		c.t.Fatal(err)
	}
	shell := exec.CommandContext(c.t.Context(), "sh", "-euc", psqlFunction+script+"\nwait")
	shell.Dir, shell.Env = c.dir, c.env
	if output, err := shell.CombinedOutput(); err != nil {
		c.t.Errorf("%s: %v\n%s", place, err, output)
	}
	text, err := os.ReadFile(c.log())
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		one := recordedCommand{place: place}
		if err := json.Unmarshal([]byte(line), &one.words); err != nil {
			c.t.Fatal(err)
		}
		c.recorded = append(c.recorded, one)
	}
}

// kinds contains the kinds of the objects that kubectl names in lower case.
var kinds = map[string]string{
	"deployment": "Deployment", "statefulset": "StatefulSet", "svc": "Service", "job": "Job",
	"hpa": "HorizontalPodAutoscaler",
}

// checkKubectl checks that the objects, ports, files and metrics in the commands exist.
func (c *clone) checkKubectl(objects map[string]object) {
	named := regexp.MustCompile(`^(deployment|statefulset|svc|job|hpa)/([a-z-]+)$`)
	for _, one := range c.recorded {
		if one.words[0] != "kubectl" {
			continue
		}
		var target object
		for i, w := range one.words {
			if found := named.FindStringSubmatch(w); found != nil {
				key := kinds[found[1]] + "/" + found[2]
				if _, ok := objects[key]; !ok {
					c.t.Errorf("%s: the charts do not create %s", one.place, key)
				}
				target = objects[key]
			}
			if path, ok := strings.CutPrefix(w, "/proc/1/root"); ok {
				headLog := objects["ConfigMap/contacts-compliance"].Data["CONSENT_HEAD_LOG"]
				wantEqual(c.t, one.place+": file in the container", path, headLog)
			}
			if w == "-f" {
				if _, err := os.Stat(filepath.Join(c.dir, one.words[i+1])); err != nil {
					c.t.Errorf("%s: %v", one.place, err)
				}
			}
		}
		last := one.words[len(one.words)-1]
		switch {
		case slices.Contains(one.words, "port-forward"):
			if !slices.Contains(openPorts(target), last) {
				c.t.Errorf("%s: port %s is not open", one.place, last)
			}
		case slices.Contains(one.words, "--raw"):
			adapter := strings.Join(lines(c.t, "helm/environments/prometheus-adapter.yaml"), "\n")
			wantContains(c.t, "prometheus-adapter.yaml", adapter, last[strings.LastIndex(last, "/")+1:])
		}
	}
}

// openPorts returns the ports of a Service, or of the first container of a workload.
func openPorts(o object) (ports []string) {
	for _, p := range o.Spec.Ports {
		ports = append(ports, fmt.Sprint(p.Port))
	}
	for _, container := range o.Spec.Template.Spec.Containers {
		for _, p := range container.Ports {
			ports = append(ports, fmt.Sprint(p.ContainerPort))
		}
	}
	return ports
}

// composeFlags contains the subcommands of `docker compose` that the pages use, and their flags.
var composeFlags = map[string][]string{
	"up": {"--wait", "-d"}, "logs": {"-f", "--since"}, "exec": {"-T", "-w"}, "down": {"--volumes"}, "stop": nil,
	"restart": nil, "cp": nil,
}

// flagsWithValue lists the flags of `docker compose` whose value is the next word.
var flagsWithValue = []string{"--since", "-w"}

// checkDocker checks the services, flags, files and build arguments in the commands.
func (c *clone) checkDocker() {
	for _, one := range c.recorded {
		switch {
		case one.words[0] != "docker":
		case one.words[1] == "build":
			c.checkBuild(one)
		case one.words[1] == "compose":
			c.checkCompose(one)
		default:
			c.t.Errorf("%s: %q is not known", one.place, one.words)
		}
	}
}

func (c *clone) checkCompose(one recordedCommand) {
	defined, subcommand := composed(c.t).Services, one.words[2]
	flags, known := composeFlags[subcommand]
	if !known {
		c.t.Errorf("%s: docker compose has no subcommand %q", one.place, subcommand)
	}
	for i := 3; i < len(one.words); i++ {
		w := one.words[i]
		if strings.HasPrefix(w, "-") {
			if !slices.Contains(flags, w) {
				c.t.Errorf("%s: docker compose %s with flag %q is not known", one.place, subcommand, w)
			}
			if slices.Contains(flagsWithValue, w) {
				i++
			}
			continue
		}
		service, _, _ := strings.Cut(w, ":") // an argument of cp can be SERVICE:PATH
		if _, ok := defined[service]; !ok {
			c.t.Errorf("%s: docker-compose.yml has no service %q", one.place, service)
		}
		if subcommand == "exec" || subcommand == "cp" {
			return // the other words are the command in the container, or the destination
		}
	}
}

// commitHash matches the value of REVISION.
var commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

func (c *clone) checkBuild(one recordedCommand) {
	var dockerfile string
	given := map[string]string{}
	for i, w := range one.words {
		switch w {
		case "-f":
			dockerfile = strings.Join(lines(c.t, one.words[i+1]), "\n")
		case "--build-arg":
			name, value, _ := strings.Cut(one.words[i+1], "=")
			given[name] = value
			wantContains(c.t, "the Dockerfile", dockerfile, "ARG "+name)
			others := []string{"simcarrier", "console"}
			if name == "SERVICE" && !slices.Contains(slices.Concat(services, others), value) {
				c.t.Errorf("%s: %q is not a service", one.place, value)
			}
		}
	}
	// The Dockerfile puts these arguments into labels of the image.
	for _, name := range []string{"SERVICE", "VERSION", "REVISION", "SOURCE"} {
		if given[name] == "" {
			c.t.Errorf("%s: the build has no argument %s", one.place, name)
		}
	}
	wantEqual(c.t, one.place+": SOURCE", given["SOURCE"], cloneSource)
	if !commitHash.MatchString(given["REVISION"]) {
		c.t.Errorf("%s: REVISION = %q, want a commit", one.place, given["REVISION"])
	}
}
