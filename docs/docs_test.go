package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// wordsInPage and wordsInAll limit the number of words in a page and in all pages. Generated lists
// can be longer.
const wordsInPage, wordsInAll = 1500, 45_000

var generated = []string{
	"../docs/reference/alerts.md", "../docs/reference/configuration.md", "../docs/reference/errors.md",
	"../docs/reference/metrics.md",
}

func TestRender_LinkTargetsExist(t *testing.T) {
	t.Parallel()
	files, err := Render()
	if err != nil {
		t.Fatal(err)
	}
	anchors, links := map[string]map[string]bool{}, map[string][]string{}
	for name, content := range files {
		if path.Ext(name) == ".html" {
			anchors[name], links[name] = references(t, string(content))
		}
	}
	for name, all := range links {
		for _, link := range all {
			if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(link, "#")
			to := name
			if file != "" {
				to = path.Join(path.Dir(name), file)
			}
			if _, ok := files[to]; !ok {
				t.Errorf("%s links to %s, which does not exist", name, link)
			}
			if anchor != "" && !anchors[to][anchor] {
				t.Errorf("%s links to %s, an anchor that does not exist", name, link)
			}
		}
	}
}

// references returns the anchors of an HTML page and the targets of the page's links.
func references(t *testing.T, content string) (anchors map[string]bool, links []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	anchors = map[string]bool{}
	for node := range root.Descendants() {
		for _, a := range node.Attr {
			switch a.Key {
			case "id":
				anchors[a.Val] = true
			case "href", "src":
				links = append(links, a.Val)
			}
		}
	}
	return anchors, links
}

// jsonBlock matches the bodies in events.md, which are copies of the examples of the API.
var jsonBlock = regexp.MustCompile("(?s)```json\n.*?```")

func TestMarkdown_PagesAreShort(t *testing.T) {
	t.Parallel()
	all := 0
	for name, content := range markdown(t) {
		if slices.Contains(generated, name) {
			continue
		}
		if name == "../docs/reference/events.md" {
			content = jsonBlock.ReplaceAllString(content, "")
		}
		words := len(strings.Fields(content))
		all += words
		if words > wordsInPage {
			t.Errorf("%s has %d words, want at most %d", name, words, wordsInPage)
		}
	}
	if all > wordsInAll {
		t.Errorf("all pages have %d words, want at most %d", all, wordsInAll)
	}
}

func TestNavigation_ContainsEveryPage(t *testing.T) {
	t.Parallel()
	pages, err := read()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		if section, _ := position(p.source); section < 0 {
			t.Errorf("%s is in no section of the navigation", p.source)
		}
	}
	for _, section := range navigation {
		for _, entry := range section.pages {
			if _, err := fs.Stat(sources, entry); err != nil {
				t.Errorf("navigation: %v", err)
			}
		}
	}
}

func TestList_ContainsALinkToEveryPage(t *testing.T) {
	t.Parallel()
	files, err := Render()
	if err != nil {
		t.Fatal(err)
	}
	list, err := List("/docs/guides/")
	if err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if link := fmt.Sprintf("(/docs/guides/%s)", name); path.Ext(name) == ".md" && !strings.Contains(string(list), link) {
			t.Errorf("llms.txt does not name %s", name)
		}
	}
}

// skipped matches folders without pages.
var skipped = regexp.MustCompile(`^(bin|node_modules|testdata|\.[a-z].*)$`)

// markdown returns the text of the repository's Markdown files by path.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && skipped.MatchString(entry.Name()) {
			return fs.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		content, err := os.ReadFile(name)
		files[name] = string(content)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found %d Markdown files, want at least 20", len(files))
	}
	return files
}
