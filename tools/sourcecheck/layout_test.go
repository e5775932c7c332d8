package sourcecheck

import (
	"go/ast"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxPackages limits the packages with hand-written source, so that a newcomer can read the list of
// folders.
const maxPackages = 130

func TestLayout_HasAtMost130Packages(t *testing.T) {
	t.Parallel()
	packages := map[string]bool{}
	for _, s := range tree(t) {
		if !s.test() {
			packages[path.Dir(s.path)] = true
		}
	}
	if got := len(packages); got > maxPackages {
		t.Errorf("packages = %d, want at most %d:\n%s", got, maxPackages,
			strings.Join(slices.Sorted(maps.Keys(packages)), "\n"))
	}
}

func TestLayout_PackageNamesAreNoVerbs(t *testing.T) {
	t.Parallel()
	for _, s := range tree(t) {
		if name := path.Base(path.Dir(s.path)); strings.HasSuffix(name, "ing") {
			t.Errorf("%s: package %s is named by a verb, want a noun of the domain", s.path, name)
		}
	}
}

func TestLayout_EachPackageHasOnePackageComment(t *testing.T) {
	t.Parallel()
	comments := map[string]int{}
	for _, s := range tree(t) {
		if s.test() {
			continue
		}
		folder := path.Dir(s.path)
		comments[folder] += 0
		if s.file.Doc != nil {
			comments[folder]++
		}
	}
	for folder, n := range comments {
		if n != 1 {
			t.Errorf("%s: package comments = %d, want 1", folder, n)
		}
	}
}

var (
	// testPattern matches a variable of the Makefile, or a flag, that selects tests by name.
	testPattern = regexp.MustCompile(`(?:_TESTS|PASTPOOLER|POOLER_MANY_ROWS) := (\S+)|-(?:run|skip) ['"]?([^\s'"$]+)`)
	group       = regexp.MustCompile(`^(.*)\(([^)]*)\)(.*)$`)
)

// If a -run pattern matches no test, go test runs no test and make succeeds.
func TestMakefile_PatternsSelectTests(t *testing.T) {
	t.Parallel()
	var tests []string
	for _, s := range tree(t) {
		if s.test() {
			for _, declaration := range s.file.Decls {
				if f, ok := declaration.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
					tests = append(tests, f.Name.Name)
				}
			}
		}
	}
	makefile, err := os.ReadFile(path.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, found := range testPattern.FindAllStringSubmatch(string(makefile), -1) {
		for _, name := range splitAlternatives(found[1] + found[2]) {
			checked++
			if !slices.ContainsFunc(tests, regexp.MustCompile(name).MatchString) {
				t.Errorf("Makefile: %s matches no test", name)
			}
		}
	}
	if checked < 20 {
		t.Errorf("names = %d, want at least 20", checked)
	}
}

// splitAlternatives splits a pattern at each |, inside and outside of parentheses, into patterns
// without |. A closing parenthesis can be missing, because the Makefile computes the rest of the
// pattern.
func splitAlternatives(expression string) []string {
	if strings.Count(expression, "(") > strings.Count(expression, ")") {
		expression += ")"
	}
	if g := group.FindStringSubmatch(expression); g != nil {
		var names []string
		for one := range strings.SplitSeq(g[2], "|") {
			if one != "" {
				names = append(names, g[1]+one+g[3])
			}
		}
		return names
	}
	return strings.Split(expression, "|")
}

func tree(t *testing.T) []source {
	t.Helper()
	sources, err := parseFiles(os.DirFS(repository))
	if err != nil {
		t.Fatal(err)
	}
	return sources
}
