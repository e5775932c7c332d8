// Command wordlist reports words that the style guide forbids. It checks the tracked files of the
// working directory and the subjects of commits: comments, log messages, test messages, errors,
// printed texts, help texts and SQL in Go, documents, and whole lines of the other text files.
//
// It finds known words only. A reviewer still reads every sentence.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

//go:embed words.txt
var list string

// rule is a forbidden expression and the advice that is printed with it.
type rule struct {
	pattern *regexp.Regexp
	advice  string
}

// prose is a piece of text with the place where it was found, for example "libs/pg/pool.go:12".
type prose struct{ place, content string }

func main() {
	subjectsBase := flag.String("subjects-base", "", "commit since which commit subjects are checked (required)")
	flag.Parse()
	if err := run(*subjectsBase); err != nil {
		fmt.Fprintln(os.Stderr, "wordlist:", err)
		os.Exit(1)
	}
}

func run(subjectsBase string) error {
	words, err := parseWords(list)
	if err != nil {
		return err
	}
	texts, err := trackedTexts()
	if err != nil {
		return err
	}
	subjects, err := subjectsSince(subjectsBase)
	if err != nil {
		return err
	}
	found := check(words, append(texts, subjects...))
	for _, finding := range found {
		fmt.Println(finding)
	}
	if len(found) > 0 {
		return fmt.Errorf("%d forbidden words", len(found))
	}
	return nil
}

func parseWords(list string) ([]rule, error) {
	var words []rule
	for line := range strings.Lines(list) {
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		expression, advice, ok := strings.Cut(line, "\t")
		if !ok {
			return nil, fmt.Errorf("words.txt: %q has no advice", line)
		}
		pattern, err := regexp.Compile(`(?i)\b(` + expression + `)\b`)
		if err != nil {
			return nil, fmt.Errorf("words.txt: %w", err)
		}
		words = append(words, rule{pattern: pattern, advice: advice})
	}
	return words, nil
}

func check(words []rule, texts []prose) (found []string) {
	for _, t := range texts {
		for _, w := range words {
			for _, match := range w.pattern.FindAllString(t.content, -1) {
				found = append(found, fmt.Sprintf("%s: %q: %s", t.place, match, w.advice))
			}
		}
	}
	return found
}

// checkedFiles matches the files that are checked. excludedFiles matches generated files and the
// files that list the words.
var (
	checkedFiles = regexp.MustCompile(
		`(\.(go|md|ya?ml|proto|sql|sh|env|tpl|ts|py|js|json|html|txt)|Makefile|Dockerfile)$`)
	excludedFiles = regexp.MustCompile(`(^|/)(testdata|node_modules)/|^tools/wordlist/|^docs/images/|^proto/.*\.json$`)
)

func trackedTexts() ([]prose, error) {
	files, err := git("ls-files", "-z")
	if err != nil {
		return nil, err
	}
	var texts []prose
	for path := range strings.SplitSeq(files, "\x00") {
		if !checkedFiles.MatchString(path) || excludedFiles.MatchString(path) {
			continue
		}
		lines, err := proseOf(path)
		if err != nil {
			return nil, err
		}
		for _, line := range slices.Sorted(maps.Keys(lines)) {
			for _, part := range lines[line] {
				texts = append(texts, prose{place: fmt.Sprintf("%s:%d", path, line), content: part})
			}
		}
	}
	return texts, nil
}

func subjectsSince(base string) (texts []prose, err error) {
	subjects, err := git("log", "--no-merges", "--format=%h%x09%s", base+"..HEAD")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(subjects) {
		commit, subject, _ := strings.Cut(strings.TrimSpace(line), "\t")
		texts = append(texts, prose{place: "commit " + commit, content: subject})
	}
	return texts, nil
}

// proseOf returns the prose of a file by line number. For a deleted file it returns nothing.
func proseOf(path string) (map[int][]string, error) {
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case strings.HasSuffix(path, ".go"):
		return goProse(path, content)
	case strings.HasSuffix(path, ".md"):
		return markdownProse(string(content)), nil
	}
	prose, number := map[int][]string{}, 0
	for line := range strings.Lines(string(content)) {
		number++
		prose[number] = []string{line}
	}
	return prose, nil
}

// markdownProse returns the lines of a document outside of code blocks.
func markdownProse(content string) map[int][]string {
	prose, code, number := map[int][]string{}, false, 0
	for line := range strings.Lines(content) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if !code {
			prose[number] = append(prose[number], line)
		}
	}
	return prose
}

// messageFunctions are the functions and methods whose string arguments are log messages, test
// messages, errors, printed texts or descriptions of flags.
var messageFunctions = []string{
	"Debug", "Info", "Warn", "Error", "DebugContext", "InfoContext", "WarnContext", "ErrorContext",
	"Errorf", "Fatal", "Fatalf", "Log", "Logf", "Skip", "Skipf",
	"Print", "Printf", "Println", "Fprint", "Fprintf", "Fprintln", "Sprintf", "Appendf", "New",
	"Say", "Remark", "Confirm",
	"Bool", "BoolVar", "Duration", "DurationVar", "Float64", "Float64Var", "Func", "Int", "IntVar", "Int64", "Int64Var",
	"String", "StringVar", "Uint64", "Uint64Var", "Var",
}

// statement matches a string literal that contains SQL.
var statement = regexp.MustCompile("^[`\"]\\s*(WITH|SELECT|INSERT|UPDATE|DELETE)\\s")

// goProse returns the comments, messages, help texts and SQL of a Go file by line number. For a
// generated file it returns nothing.
func goProse(path string, content []byte) (map[int][]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	prose := map[int][]string{}
	if ast.IsGenerated(file) {
		return prose, nil
	}
	add := func(pos token.Pos, content string) {
		first, number := files.Position(pos).Line, 0
		for line := range strings.Lines(content) {
			prose[first+number] = append(prose[first+number], line)
			number++
		}
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			add(comment.Pos(), comment.Text)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && field.Tag != nil {
			add(field.Tag.Pos(), reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("help"))
			return true
		}
		if literal, ok := n.(*ast.BasicLit); ok && statement.MatchString(literal.Value) {
			add(literal.Pos(), literal.Value)
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(messageFunctions, method.Sel.Name) {
			return true
		}
		for _, argument := range call.Args {
			for _, literal := range literals(argument) {
				add(literal.Pos(), literal.Value)
			}
		}
		return true
	})
	return prose, nil
}

// literals returns the string literals of an argument, which can be a concatenation.
func literals(argument ast.Expr) []*ast.BasicLit {
	switch x := argument.(type) {
	case *ast.BasicLit:
		if x.Kind == token.STRING {
			return []*ast.BasicLit{x}
		}
	case *ast.BinaryExpr:
		return append(literals(x.X), literals(x.Y)...)
	}
	return nil
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
