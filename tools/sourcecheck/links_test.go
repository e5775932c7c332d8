package sourcecheck

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

const repository = "../.."

var (
	codeBlock = regexp.MustCompile("(?s)```.*?```")
	link      = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notAnchor = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

func TestDocuments_EveryLinkTargetExists(t *testing.T) {
	t.Parallel()
	pages, checked := documents(t), 0
	for name, text := range pages {
		for _, found := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			file, anchor := found[1], found[2]
			if strings.Contains(file, ":") { // the link leads to another site
				continue
			}
			checked++
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(path.Join(repository, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, file)
				continue
			}
			if page, ok := pages[target]; ok && anchor != "" && !pageAnchors(page)[anchor] {
				t.Errorf("%s links to %s#%s, which has no such heading", name, file, anchor)
			}
		}
	}
	if checked < 100 {
		t.Errorf("links = %d, want at least 100", checked)
	}
}

// citedPage matches the path of a page in docs in a Go file, with or without an anchor.
var citedPage = regexp.MustCompile(`\bdocs/[\w/.-]+\.md(?:#[\w-]+)?`)

func TestCitations_CitedPagesAndHeadingsExist(t *testing.T) {
	t.Parallel()
	pages, cited := documents(t), 0
	sources, err := parseFiles(os.DirFS(repository))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		for _, group := range s.file.Comments {
			for _, found := range citedPage.FindAllString(group.Text(), -1) {
				file, anchor, _ := strings.Cut(found, "#")
				cited++
				page, ok := pages[file]
				if !ok {
					t.Errorf("%s:%d cites %s, which does not exist", s.path, s.line(group.Pos()), file)
				} else if anchor != "" && !pageAnchors(page)[anchor] {
					t.Errorf("%s:%d cites %s, which has no such heading", s.path, s.line(group.Pos()), found)
				}
			}
		}
	}
	if cited < 20 {
		t.Errorf("citations = %d, want at least 20", cited)
	}
}

// Markdown shows a table without a header row as plain text.
func TestDocuments_TablesHaveHeaders(t *testing.T) {
	t.Parallel()
	for name, text := range documents(t) {
		lines := strings.Split(codeBlock.ReplaceAllString(text, ""), "\n")
		for i, line := range lines {
			first := strings.HasPrefix(line, "|") && (i == 0 || !strings.HasPrefix(lines[i-1], "|"))
			if first && (i+1 == len(lines) || !strings.HasPrefix(lines[i+1], "|--")) {
				t.Errorf("%s: the table that begins with %q has no header", name, line)
			}
		}
	}
}

// outsideCitation matches citations of documents outside of the repository, and guarantees that are
// cited by number.
var outsideCitation = regexp.MustCompile(`contract\.md|\bspec(ification)? [0-9]|\blaw [0-9]|\bquestion [0-9]`)

// commitHash matches a commit hash: 7 to 40 hexadecimal digits with a letter and a digit.
var commitHash = regexp.MustCompile("(?m)(?:^|[\\s(`])([0-9a-f]{7,40})(?:$|[\\s).,`])")

func TestDocuments_CiteNoOutsideDocumentsOrCommits(t *testing.T) {
	t.Parallel()
	for name, text := range documents(t) {
		if found := outsideCitation.FindString(text); found != "" {
			t.Errorf("%s cites %q, want a page of the repository", name, found)
		}
		for _, match := range commitHash.FindAllStringSubmatch(text, -1) {
			if strings.ContainsAny(match[1], "abcdef") && strings.ContainsAny(match[1], "0123456789") {
				t.Errorf("%s contains %s, which looks like a commit hash", name, match[1])
			}
		}
	}
	for _, s := range tree(t) {
		for _, group := range s.file.Comments {
			if found := outsideCitation.FindString(group.Text()); found != "" {
				t.Errorf("%s:%d: cites %q, want a page of the repository", s.path, s.line(group.Pos()), found)
			}
		}
	}
}

func documents(t *testing.T) map[string]string {
	t.Helper()
	pages, root := map[string]string{}, os.DirFS(repository)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := name != "." && strings.HasPrefix(entry.Name(), ".")
		if entry.IsDir() && (hidden || name == "bin" || entry.Name() == "node_modules") {
			return fs.SkipDir
		}
		if entry.IsDir() || path.Ext(name) != ".md" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		pages[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// pageAnchors returns the anchors that GitHub gives to the headings of a page.
func pageAnchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		text := notAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(h[1])), "")
		found[strings.ReplaceAll(text, " ", "-")] = true
	}
	return found
}
