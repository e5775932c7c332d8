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
	if files, _ := filepath.Glob(filepath.Join(repositoryRoot, folder, "*.go")); len(files) == 0 &&
		!strings.HasSuffix(folder, "/...") {
		t.Errorf("%s: go %s: the folder %q has no Go files", b, args[0], folder)
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

var inlineCommand = regexp.MustCompile("`(?:cd (\\S+) && )?" +
	"((?:make|go test|go run|buf|\\S*bin/tools/\\S+) [^`]+|\\.ci/run)`")

// TestInlineCommands_TargetsAndPackagesExist checks the commands in the text of all pages. Their
// make targets must exist, and a package of `go test` must have tests.
func TestInlineCommands_TargetsAndPackagesExist(t *testing.T) {
	t.Parallel()
	pages, err := exec.CommandContext(t.Context(), "git", "-C", repositoryRoot, "ls-files", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for page := range strings.Lines(string(pages)) {
		page = strings.TrimSpace(page)
		text, err := os.ReadFile(filepath.Join(repositoryRoot, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range inlineCommand.FindAllStringSubmatch(string(text), -1) {
			checked++
			checkInlineCommand(t, page, found[1], found[2])
		}
	}
	if checked < 50 {
		t.Errorf("checked %d commands, want at least 50", checked)
	}
}

func checkInlineCommand(t *testing.T, page, folder, command string) {
	t.Helper()
	words := word.FindAllString(placeholder.ReplaceAllString(command, "x"), -1)
	for i, w := range words {
		words[i] = strings.ReplaceAll(w, "'", "")
	}
	switch words[0] {
	case "make":
		dryRun(t, words[1:]...)
	case "go":
		for i, w := range words {
			if tests, _ := filepath.Glob(filepath.Join(repositoryRoot, w, "*_test.go")); len(tests) == 0 &&
				strings.HasPrefix(w, "./") {
				t.Errorf("%s: %s: the folder %s has no tests", page, command, w)
			}
			if w == "-run" && !testExists(t, words[i-1], words[i+1]) {
				t.Errorf("%s: %s: no test matches", page, command)
			}
		}
	case ".ci/run":
		if _, err := os.Stat(filepath.Join(repositoryRoot, words[0])); err != nil {
			t.Errorf("%s: %v", page, err)
		}
	default: // make builds the program of bin/tools
		target, inTools := strings.CutPrefix(filepath.Join(folder, words[0]), "bin/tools/")
		makefile, err := os.ReadFile(filepath.Join(repositoryRoot, "Makefile"))
		if err != nil {
			t.Fatal(err)
		}
		if !inTools || !strings.Contains(string(makefile), "$(TOOLS)/"+target+":") {
			t.Errorf("%s: no make target builds the program of %s", page, command)
		}
	}
}

// placeholder matches a value that the reader inserts.
var placeholder = regexp.MustCompile(`<[^>]*>`)

func readBlocks(t *testing.T) []PageBlock {
	t.Helper()
	blocks, err := ReadPages(repositoryRoot)
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}
