package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const repositoryRoot = "../.."

func TestPageIndex_EveryBlockHasATest(t *testing.T) {
	t.Parallel()
	matched, assigned := map[pageEntry]int{}, map[string]int{}
	for _, b := range readBlocks(t) {
		found, ok := findEntry(b)
		if !ok {
			t.Errorf("%s: no test runs this %s block: add it to pageIndex", b, b.Language)
			continue
		}
		matched[found]++
		assigned[found.Test]++
	}
	for _, e := range pageIndex {
		if n := matched[e]; n == 0 || e.Count > 0 && n != e.Count {
			t.Errorf("the entry %+v matches %d blocks", e, n)
		}
		if e.Count == 0 && slices.Contains(fixedTests, e.Test) {
			t.Errorf("the entry %+v has no Count, and its test runs only the blocks that it knows", e)
		}
	}
	for test, n := range assigned {
		t.Logf("%3d blocks: %s", n, test)
	}
}

func TestPageIndex_EveryListedTestExists(t *testing.T) {
	t.Parallel()
	for _, e := range pageIndex {
		folder, name, _ := strings.Cut(e.Test, " ")
		if !testExists(t, folder, "^"+name+"$") {
			t.Errorf("%s: %s has no test %s", e.Page, folder, name)
		}
	}
}

func TestReadPages_FindsUnmarkedCommands(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		wantError  bool
	}{
		{name: "a command without a language", text: "```\nmake run\n```\n", wantError: true},
		{name: "a command after a variable", text: "```\nA=1 go test ./x\n```\n", wantError: true},
		{name: "a marked command", text: "```sh\nmake run\n```\n"},
		{name: "an example of a header", text: "```\nX-Service-Call-Id: 1\n```\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "page.md"), []byte(row.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadPages(dir); (err != nil) != row.wantError {
				t.Errorf("ReadPages: %v, want an error: %v", err, row.wantError)
			}
		})
	}
}

func TestPageScript_ReplacesTheDemoTargetAndOmitsOtherTargets(t *testing.T) {
	t.Parallel()
	got := PageScript([]PageBlock{
		{Text: "git clone x && cd x\nmake run  # start\nA=1 make run\n"}, {Text: "make demo # call\ncurl make run\n"},
	})
	if want := "\n\n\nbin/ringfence demo # call\ncurl make run\n"; got != want {
		t.Errorf("script = %q, want %q", got, want)
	}
	for target, want := range map[string]string{"demo": "/bin/ringfence demo", "run": "/bin/ringfence-local up"} {
		if output := dryRun(t, target); !strings.Contains(output, want) {
			t.Errorf("make %s does not run %s:\n%s", target, want, output)
		}
	}
}

var (
	comment    = regexp.MustCompile(`\s+#.*$`)
	assignment = regexp.MustCompile(`^[A-Z_]+=`)
	word       = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	withADB    = []string{"bin/ringfence-local", "with-postgres", "--"}
)

// The commands of the blocks for ParsedTest compile, test or start the whole system. The test does
// not execute them. It checks that their make targets, packages and tests exist.
func TestParsedBlocks_TargetsAndPackagesAndTestsExist(t *testing.T) {
	t.Parallel()
	blocks, err := PageBlocks(repositoryRoot, ParsedTest)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		for line := range strings.Lines(b.Text) {
			words := word.FindAllString(comment.ReplaceAllString(strings.TrimSpace(line), ""), -1)
			for i, w := range words {
				words[i] = strings.ReplaceAll(w, "'", "")
			}
			for len(words) > 0 && assignment.MatchString(words[0]) {
				words = words[1:]
			}
			words = withoutPlaceholder(words)
			if len(words) > 3 && slices.Equal(words[:3], withADB) {
				words = words[3:]
			}
			switch {
			case len(words) == 0:
			case words[0] == "make":
				dryRun(t, words[1:]...)
			case len(words) > 2 && words[0] == "go":
				goCommand(t, b, words[1:])
			default:
				t.Errorf("%s: %q is no command that this test can check", b, strings.TrimSpace(line))
			}
		}
	}
}

// withoutPlaceholder drops the words before the command `make`. They belong to a value such as <key
// of the model>.
func withoutPlaceholder(words []string) []string {
	if i := slices.Index(words, "make"); i > 0 {
		return words[i:]
	}
	return words
}

// goCommand checks the packages and the tests of `go test` and `go build`.
func goCommand(t *testing.T, b PageBlock, args []string) {
	t.Helper()
	folder, tests := "", ""
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-run":
			i++
			tests = args[i]
		case "-o":
			i++
		case "-count=1":
		default:
			folder = args[i]
		}
	}
	if info, err := os.Stat(
		filepath.Join(repositoryRoot, strings.TrimSuffix(folder, "/...")),
	); err != nil ||
		!info.IsDir() {
		t.Errorf("%s: go %s: the folder %q does not exist", b, args[0], folder)
	}
	if tests != "" && !testExists(t, folder, tests) {
		t.Errorf("%s: %s has no test %s", b, folder, tests)
	}
}

var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// testExists reports whether the package in the folder has a test whose name matches the pattern.
func testExists(t *testing.T, folder, pattern string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repositoryRoot, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range testName.FindAllSubmatch(text, -1) {
			if regexp.MustCompile(pattern).Match(found[1]) {
				return true
			}
		}
	}
	return false
}

// dryRun returns what make would run. A target that does not exist is an error.
func dryRun(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-n"}, args...)...)
	cmd.Dir = repositoryRoot
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("make -n %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

func readBlocks(t *testing.T) []PageBlock {
	t.Helper()
	blocks, err := ReadPages(repositoryRoot)
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}
