// Package house owns the rules of architecture.md and CONTRIBUTING.md that a machine can judge: which room may
// import which, what a noun may not do, where SQL stands, and how large things grow. It reads source; it
// builds nothing.
package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is the path that every module of ours begins with.
const module = "ringfence.dev/"

// source is one parsed Go file.
type source struct {
	path string // from the root, with slashes
	file *ast.File
	set  *token.FileSet
	text string
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) line(pos token.Pos) int { return s.set.Position(pos).Line }

// lines of the file.
func (s source) lines() int { return strings.Count(s.text, "\n") }

// imports are the import paths with their lines.
func (s source) imports() map[string]int {
	found := map[string]int{}
	for _, spec := range s.file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil {
			found[name] = s.line(spec.Pos())
		}
	}
	return found
}

// rule judges one file; say reports a breach at a line.
type rule func(s source, say func(line int, format string, args ...any))

// Check reads the tree and lists every breach as "path:line: what, and what to do".
func Check(tree fs.FS) ([]string, error) {
	sources, err := read(tree)
	if err != nil {
		return nil, err
	}
	var breaches []string
	for _, s := range sources {
		say := func(line int, format string, args ...any) {
			breaches = append(breaches, fmt.Sprintf("%s:%d: %s", s.path, line, fmt.Sprintf(format, args...)))
		}
		for _, judge := range []rule{modules, rooms, nouns, listeners, sql, sizes, words, variables} {
			judge(s, say)
		}
	}
	breaches = append(breaches, packages(sources)...)
	breaches = append(breaches, skeleton(tree)...)
	slices.Sort(breaches)
	return breaches, nil
}

// read parses every Go file of ours that a person wrote.
func read(tree fs.FS) ([]source, error) {
	var found []source
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "node_modules" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
		if !ast.IsGenerated(file) {
			found = append(found, source{path: name, file: file, set: set, text: string(text)})
		}
		return nil
	})
	return found, err
}

// packages judges what only a whole directory shows: how many files it holds.
func packages(sources []source) []string {
	const most = 8
	count := map[string]int{}
	for _, s := range sources {
		if !s.test() {
			count[path.Dir(s.path)]++
		}
	}
	var breaches []string
	for dir, n := range count {
		if n > most {
			breaches = append(breaches, fmt.Sprintf("%s:1: %d files in one package; at most %d, tests not counted: split by meaning", dir, n, most))
		}
	}
	return breaches
}

// skeleton judges that each service has the same rooms and the top level holds nothing else.
func skeleton(tree fs.FS) []string {
	var breaches []string
	services, _ := fs.Glob(tree, "services/*/go.mod")
	for _, mod := range services {
		dir := path.Dir(mod)
		name := path.Base(dir)
		for _, must := range []string{
			"README.md", "cmd/" + name + "/main.go", "cmd/" + name + "/config.go", "internal/store", "internal/httpapi", "migrations",
		} {
			if _, err := fs.Stat(tree, path.Join(dir, must)); err != nil {
				breaches = append(breaches, fmt.Sprintf("%s:1: every service has %s (architecture.md, The tree)", dir, must))
			}
		}
		readme, _ := fs.ReadFile(tree, path.Join(dir, "README.md"))
		for _, heading := range headings {
			if !strings.Contains(string(readme), "\n## "+heading+"\n") {
				breaches = append(breaches, fmt.Sprintf("%s/README.md:1: it has no heading %q", dir, heading))
			}
		}
	}
	entries, _ := fs.ReadDir(tree, ".")
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") && !slices.Contains(topLevel, entry.Name()) {
			breaches = append(breaches, entry.Name()+":1: the top level holds only what architecture.md lists")
		}
	}
	return breaches
}

// headings are what each service's README tells.
var headings = []string{"Owns", "Does not own", "States", "Events in and out", "Run it", "When it breaks", "Decisions"}

// topLevel is what may stand there; bin/ is built and ignored.
var topLevel = []string{
	"README.md", "Makefile", "go.work", "go.work.sum", "docker-compose.yml", "LICENSE", "CONTRIBUTING.md", "SECURITY.md",
	"proto", "libs", "services", "deploy", "helm", "bin",
}
