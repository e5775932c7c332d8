// Command prove runs the end-to-end tests with every trial in full and appends a dated report of them to a file that is committed: the commit, the
// machine, the seed, and what each test said. A test that writes a report of its own (into RINGFENCE_REPORTS) is quoted. A run that failed is reported like one
// that passed.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	report := flag.String("report", "", "the file that the report is appended to; none: it is only printed")
	packages := flag.String("packages", "./deploy/e2e/... ./services/contacts-compliance/internal/gate", "what is tested: package patterns with spaces between")
	longest := flag.Duration("longest", 3*time.Hour, "how long the whole run may take; then it ends as with Ctrl-C")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "prove [flags] [-- flags of go test]; RINGFENCE_SEED repeats a run, RINGFENCE_TRIALS makes so many per cent of the trials (100)")
		flag.PrintDefaults()
	}
	flag.Parse()
	bounded, cancel := context.WithTimeout(context.Background(), *longest)
	defer cancel()
	ctx, stop := signal.NotifyContext(bounded, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends us at once
	run := proof{
		began: time.Now().UTC(), packages: *packages, args: flag.Args(),
		seed:   cmp.Or(os.Getenv("RINGFENCE_SEED"), strconv.FormatInt(time.Now().UnixNano(), 10)),
		trials: cmp.Or(os.Getenv("RINGFENCE_TRIALS"), "100"),
	}
	err := errors.Join(run.prove(ctx, os.Stdout), run.write(context.WithoutCancel(ctx), *report, os.Stdout))
	if err != nil {
		fmt.Fprintln(os.Stderr, "prove:", err)
		os.Exit(1)
	}
}

// proof is one run.
type proof struct {
	began, ended time.Time
	packages     string
	args         []string
	seed, trials string
	passed       bool
	// broken says why the run ended before its end.
	broken error
	mu     sync.Mutex // guards tests while the run goes on
	tests  []*test
	// reports are those that tests wrote, by name.
	reports map[string]string
}

// test is one that is not part of another.
type test struct {
	name   string // package and function
	result string // pass, fail or skip; "" when it never ended
	took   float64
	says   []string
	began  time.Time
}

// line is what `go test -json` says.
type line struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// patience is how long the tests have to end in order once they were told to.
const patience = time.Minute

// prove runs the tests, one package after the other, and shows what they print. When ctx ends, the tests, and the stacks that they started, are told to stop:
// what has ended by then is reported all the same.
func (p *proof) prove(ctx context.Context, out io.Writer) error {
	args := append([]string{"test", "-json", "-count=1", "-p", "1", "-timeout", "150m"}, p.args...)
	cmd := exec.CommandContext(ctx, "go", append(args, strings.Fields(p.packages)...)...)
	reports, err := os.MkdirTemp("", "ringfence-reports-")
	if err != nil {
		return fmt.Errorf("make a folder for reports: %w", err)
	}
	defer os.RemoveAll(reports)
	cmd.Env = append(os.Environ(), "RINGFENCE_SEED="+p.seed, "RINGFENCE_TRIALS="+p.trials, "RINGFENCE_REPORTS="+reports)
	cmd.Stderr = os.Stderr
	// A group of its own: a terminal's Ctrl-C comes to us, and from us to all of them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = patience
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run the tests: %w", err)
	}
	read := make(chan struct{})
	go p.tellRunning(read, os.Stderr)
	p.read(said, out)
	close(read)
	err = cmd.Wait()
	p.ended, p.passed, p.broken = time.Now().UTC(), err == nil, ctx.Err()
	return errors.Join(err, p.collect(reports))
}

// collect takes the reports of a folder.
func (p *proof) collect(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for reports: %w", err)
	}
	p.reports = map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return fmt.Errorf("read a report: %w", err)
		}
		p.reports[strings.TrimSuffix(file.Name(), filepath.Ext(file.Name()))] = string(text)
	}
	return nil
}

// tellRunning says every half minute what runs, and for how long.
func (p *proof) tellRunning(until <-chan struct{}, out io.Writer) {
	ticks := time.NewTicker(30 * time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-until:
			return
		case <-ticks.C:
			p.mu.Lock()
			for _, one := range p.tests {
				if one.result == "" {
					fmt.Fprintf(out, "  running since %s: %s; %d tests begun after %s\n",
						time.Since(one.began).Round(time.Second), one.name, len(p.tests), time.Since(p.began).Round(time.Second))
				}
			}
			p.mu.Unlock()
		}
	}
}

// logged is a line that a test logged: four spaces for a test, eight for a part of one.
var logged = regexp.MustCompile(`^ {4}\w+_test\.go:\d+: (.+)$`)

func (p *proof) read(said io.Reader, out io.Writer) {
	open := map[string]*test{}
	lines := bufio.NewScanner(said)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			fmt.Fprintln(out, lines.Text()) // a build that failed
			continue
		}
		if l.Action == "output" && (!strings.HasPrefix(l.Output, "=== ") || l.Test == "") {
			fmt.Fprint(out, l.Output)
		}
		if l.Test == "" || strings.Contains(l.Test, "/") {
			continue
		}
		p.take(l, open)
	}
}

// take notes one line of a test that is not part of another.
func (p *proof) take(l line, open map[string]*test) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := l.Package[strings.LastIndex(l.Package, "/")+1:] + " " + l.Test
	one := open[name]
	if one == nil {
		one = &test{name: name, began: time.Now()}
		open[name], p.tests = one, append(p.tests, one)
	}
	switch l.Action {
	case "pass", "fail", "skip":
		one.result, one.took = l.Action, l.Elapsed
	case "output":
		if found := logged.FindStringSubmatch(strings.TrimRight(l.Output, "\n")); found != nil && !strings.HasPrefix(found[1], "RINGFENCE_SEED=") {
			one.says = append(one.says, found[1])
		}
	}
}

// write prints the report and appends it to the file.
func (p *proof) write(ctx context.Context, path string, out io.Writer) error {
	text := p.text(commit(ctx, path), machine(ctx))
	fmt.Fprint(out, text)
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the report: %w", err)
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

// most is how many lines of a test the report keeps.
const most = 3

func (p *proof) text(commit, machine string) string {
	var b strings.Builder
	verdict := "passed"
	switch {
	case errors.Is(p.broken, context.DeadlineExceeded):
		verdict = "ended unfinished, at its longest"
	case p.broken != nil:
		verdict = "broken off"
	case !p.passed:
		verdict = "FAILED"
	}
	fmt.Fprintf(&b, "\n## %s UTC: %s\n\n", p.began.Format("2006-01-02 15:04"), verdict)
	fmt.Fprintf(&b, "- commit %s\n- machine %s\n- RINGFENCE_SEED=%s RINGFENCE_TRIALS=%s", commit, machine, p.seed, p.trials)
	if len(p.args) > 0 {
		fmt.Fprintf(&b, ", only `%s`", strings.Join(p.args, " "))
	}
	fmt.Fprintf(&b, "\n- took %s\n\n| test | result | seconds | said |\n|---|---|---|---|\n", p.ended.Sub(p.began).Round(time.Second))
	for _, one := range p.tests {
		said := strings.Join(one.says[:min(most, len(one.says))], "; ")
		fmt.Fprintf(&b, "| %s | %s | %.1f | %s |\n", one.name, cmp.Or(one.result, "never ended"), one.took, strings.ReplaceAll(said, "|", `\|`))
	}
	for _, name := range slices.Sorted(maps.Keys(p.reports)) {
		fmt.Fprintf(&b, "\n%s:\n\n```\n%s\n```\n", name, strings.TrimRight(p.reports[name], "\n"))
	}
	return b.String()
}

// commit is what was built; the report itself is no change.
func commit(ctx context.Context, report string) string {
	id, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	asked := []string{"status", "--porcelain"}
	if report != "" {
		asked = append(asked, "--", ".", ":(exclude)"+report)
	}
	changes, err := exec.CommandContext(ctx, "git", asked...).Output()
	if err != nil || len(strings.TrimSpace(string(changes))) > 0 {
		return strings.TrimSpace(string(id)) + " with changes that are not committed"
	}
	return strings.TrimSpace(string(id))
}

// machine is what the figures depend on; it names nobody.
func machine(ctx context.Context) string {
	cpu := field("/proc/cpuinfo", "model name")
	if told, err := exec.CommandContext(ctx, "sysctl", "-n", "machdep.cpu.brand_string").Output(); cpu == "" && err == nil {
		cpu = strings.TrimSpace(string(told))
	}
	text := fmt.Sprintf("%d × %s, %s/%s, %s", runtime.NumCPU(), cmp.Or(cpu, runtime.GOARCH), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if kib, err := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB")); err == nil {
		text += fmt.Sprintf(", %.1f GiB", float64(kib)/(1<<20))
	}
	return text
}

// field is the first value of a name in a file of "name : value" lines.
func field(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for text := range strings.Lines(string(data)) {
		if key, value, found := strings.Cut(text, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
