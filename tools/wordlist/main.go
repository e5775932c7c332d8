// Command wordlist reports words that the style guide forbids, in lines that changed since a commit. It checks Go
// comments, log messages, test messages, Markdown and commit subjects.
//
// It finds known words only. A reviewer still reads every sentence.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed words.txt
var list string

// word is a forbidden expression and the advice that is printed with it.
type word struct {
	pattern *regexp.Regexp
	advice  string
}

// text is a piece of prose with its place, for example "libs/pg/pool.go:12".
type text struct{ place, content string }

func main() {
	base := flag.String("base", "", "commit since which lines are checked (required)")
	subjectsBase := flag.String("subjects-base", "", "commit since which commit subjects are checked (required)")
	flag.Parse()
	if err := run(*base, *subjectsBase); err != nil {
		fmt.Fprintln(os.Stderr, "wordlist:", err)
		os.Exit(1)
	}
}

func run(base, subjectsBase string) error {
	words, err := parseWords(list)
	if err != nil {
		return err
	}
	texts, err := changedTexts(base, subjectsBase)
	if err != nil {
		return err
	}
	found := check(words, texts)
	for _, finding := range found {
		fmt.Println(finding)
	}
	if len(found) > 0 {
		return fmt.Errorf("%d forbidden words in lines since %s and subjects since %s", len(found), base, subjectsBase)
	}
	return nil
}

// parseWords reads the format of words.txt.
func parseWords(list string) ([]word, error) {
	var words []word
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
		words = append(words, word{pattern: pattern, advice: advice})
	}
	return words, nil
}

// check returns one line for each forbidden word.
func check(words []word, texts []text) (found []string) {
	for _, t := range texts {
		for _, w := range words {
			for _, match := range w.pattern.FindAllString(t.content, -1) {
				found = append(found, fmt.Sprintf("%s: %q: %s", t.place, match, w.advice))
			}
		}
	}
	return found
}

// changedTexts returns the prose of the lines that were added since base, and the subjects of the commits since
// subjectsBase.
func changedTexts(base, subjectsBase string) ([]text, error) {
	diff, err := git("diff", "--unified=0", "--no-color", "--no-ext-diff", "--diff-filter=AMR", base, "--", "*.go", "*.md")
	if err != nil {
		return nil, err
	}
	added, err := addedLines(diff)
	if err != nil {
		return nil, err
	}
	var texts []text
	for path, lines := range added {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		prose := markdownProse(path, string(content))
		if strings.HasSuffix(path, ".go") {
			if prose, err = goProse(path, content); err != nil {
				return nil, err
			}
		}
		for _, line := range lines {
			for _, part := range prose[line] {
				texts = append(texts, text{place: fmt.Sprintf("%s:%d", path, line), content: part})
			}
		}
	}
	slices.SortFunc(texts, func(a, b text) int { return strings.Compare(a.place, b.place) })
	subjects, err := git("log", "--no-merges", "--format=%h%x09%s", subjectsBase+"..HEAD")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(subjects) {
		commit, subject, _ := strings.Cut(strings.TrimSpace(line), "\t")
		texts = append(texts, text{place: "commit " + commit, content: subject})
	}
	return texts, nil
}

var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// addedLines reads a diff without context lines and returns the numbers of the added lines by path.
func addedLines(diff string) (map[string][]int, error) {
	added, path := map[string][]int{}, ""
	for line := range strings.Lines(diff) {
		if name, ok := strings.CutPrefix(line, "+++ b/"); ok {
			path = strings.TrimRight(name, "\t\n")
			continue
		}
		match := hunk.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		first, err := strconv.Atoi(match[1])
		if err != nil {
			return nil, err
		}
		count := 1
		if match[2] != "" {
			if count, err = strconv.Atoi(match[2]); err != nil {
				return nil, err
			}
		}
		for n := range count {
			added[path] = append(added[path], first+n)
		}
	}
	return added, nil
}

// markdownProse returns the lines of a document outside of code blocks.
func markdownProse(path, content string) map[int][]string {
	prose, code, number := map[int][]string{}, false, 0
	for line := range strings.Lines(content) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if !code && strings.HasSuffix(path, ".md") {
			prose[number] = append(prose[number], line)
		}
	}
	return prose
}

// messageMethods are the methods whose string arguments are log or test messages.
var messageMethods = []string{
	"Debug", "Info", "Warn", "Error", "DebugContext", "InfoContext", "WarnContext", "ErrorContext",
	"Errorf", "Fatal", "Fatalf", "Log", "Logf", "Skip", "Skipf",
}

// goProse returns the comments and the messages of a Go file by line. Generated files have none.
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
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(messageMethods, method.Sel.Name) {
			return true
		}
		for _, argument := range call.Args {
			if literal, ok := argument.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				add(literal.Pos(), literal.Value)
			}
		}
		return true
	})
	return prose, nil
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
