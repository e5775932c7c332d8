// Package sourcecheck checks rules about the source tree. SQL is in internal/store, and every
// environment variable has a help text. Every service has the same skeleton, and every error code
// is documented. Comments have at most 100 columns. golangci-lint checks all other rules.
package sourcecheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

type source struct {
	path string // the path relative to the root of the repository, with slashes
	file *ast.File
	set  *token.FileSet
	// code contains the lines on which a token other than a comment is.
	code map[int]bool
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) line(pos token.Pos) int { return s.set.Position(pos).Line }

// Check reads the tree and returns every violation as "path:line: message", sorted.
func Check(tree fs.FS) ([]string, error) {
	sources, err := parseFiles(tree)
	if err != nil {
		return nil, err
	}
	violations := checkLayout(tree)
	for _, s := range sources {
		report := func(pos token.Pos, message string) {
			violations = append(violations, fmt.Sprintf("%s:%d: %s", s.path, s.line(pos), message))
		}
		checkComments(s, report)
		if !s.test() {
			checkStatements(s, report)
			checkVariables(s, report)
		}
	}
	slices.Sort(violations)
	return violations, nil
}

// parseFiles parses every Go file that is not generated.
func parseFiles(tree fs.FS) ([]source, error) {
	var found []source
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if ignored(name, entry.Name()) {
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
			found = append(found, source{path: name, file: file, set: set, code: codeLines(set, file)})
		}
		return nil
	})
	return found, err
}

// codeLines returns the lines on which a node of the syntax tree begins or ends.
func codeLines(set *token.FileSet, file *ast.File) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case nil:
			return false
		case *ast.Comment, *ast.CommentGroup:
			return false
		case *ast.File:
			return true
		}
		lines[set.Position(n.Pos()).Line], lines[set.Position(n.End()).Line] = true, true
		return true
	})
	return lines
}

func ignored(name, base string) bool {
	if name == "." {
		return false
	}
	return strings.HasPrefix(base, ".") || name == "bin" || base == "testdata" || base == "node_modules"
}

// checkLayout checks that every service has the common files and folders.
func checkLayout(tree fs.FS) (violations []string) {
	modules, _ := fs.Glob(tree, "services/*/go.mod")
	for _, module := range modules {
		dir := path.Dir(module)
		command := "cmd/" + path.Base(dir)
		names := []string{"README.md", command + "/main.go", command + "/config.go"}
		if path.Base(dir) != "console" { // the console has no database and serves pages
			names = append(names, "internal/store/migrations", "internal/httpapi")
		}
		for _, name := range names {
			if _, err := fs.Stat(tree, path.Join(dir, name)); err != nil {
				violations = append(violations, fmt.Sprintf("%s:1: %s is missing", dir, name))
			}
		}
	}
	return violations
}

// maxCommentColumns is the width of a comment that has its own line. A tab counts as one column.
const maxCommentColumns = 100

// oneWord matches a comment that cannot be wrapped, such as a long address or a directive.
var oneWord = regexp.MustCompile(`^//(go:|nolint|\s*\S+$)`)

// checkComments reports comments that are too wide. golangci-lint checks the width of lines with
// code.
func checkComments(s source, report func(token.Pos, string)) {
	for _, group := range s.file.Comments {
		for _, comment := range group.List {
			place := s.set.Position(comment.Pos())
			for line := range strings.Lines(comment.Text) {
				text := strings.TrimRight(line, " \n")
				columns := place.Column - 1 + utf8.RuneCountInString(text)
				if !s.code[place.Line] && columns > maxCommentColumns && !oneWord.MatchString(text) {
					report(comment.Pos(), fmt.Sprintf("the comment has %d columns, want at most %d", columns, maxCommentColumns))
				}
				place.Line, place.Column = place.Line+1, 1
			}
		}
	}
}

var statement = regexp.MustCompile(`^\s*(SELECT\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+(AS\s+\S+\s+)?SET\s|DELETE\s+FROM\s|` +
	`WITH\s+\w+\s+AS\s|LOCK\s+TABLE\s|TRUNCATE\s)`)

// checkStatements reports SQL statements of a service outside of the service's internal/store.
// Packages for tests can contain SQL.
func checkStatements(s source, report func(token.Pos, string)) {
	parts := strings.Split(path.Dir(s.path), "/")
	if parts[0] != "services" || len(parts) > 3 && parts[2] == "internal" && parts[3] == "store" {
		return
	}
	if slices.ContainsFunc(parts[1:], func(part string) bool { return strings.HasSuffix(part, "test") }) {
		return
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if ok && literal.Kind == token.STRING && statement.MatchString(strings.Trim(literal.Value, "`\"")) {
			report(n.Pos(), "move this SQL to internal/store")
		}
		return true
	})
}

// checkVariables reports environment variables without a help text. --help prints the help texts.
func checkVariables(s source, report func(token.Pos, string)) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
		if name, _, _ := strings.Cut(tag.Get("env"), ","); name != "" && tag.Get("help") == "" {
			report(field.Pos(), name+` has no help: add help:"what it means, with its unit"`)
		}
		return true
	})
}
