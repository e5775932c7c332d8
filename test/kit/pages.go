package kit

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// PageBlock is a code block of a page that contains commands or queries.
type PageBlock struct {
	// Page is the path of the page from the root of the repository.
	Page string
	// Line is the number of the first line after the fence.
	Line int
	// Language is sh, sql or promql.
	Language string
	Text     string
}

// String returns the place of the block, for example README.md:37.
func (b PageBlock) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

var (
	// languages are the languages of the blocks that ReadPages returns.
	languages = []string{"sh", "sql", "promql"}
	// skipped matches the folders without pages.
	skipped = regexp.MustCompile(`^(bin|node_modules|testdata|\.[a-z].*)$`)
	fence   = regexp.MustCompile("^ *```([a-z]*)$")
	// unmarked matches a command in a block without a language.
	unmarked = regexp.MustCompile(
		`(?m)^ *(\$ |\S+=\S* )*(make|go|git|curl|docker|helm|kubectl|psql|(bin/)?ringfence(-local)?) `)
)

// ReadPages returns the blocks of all pages under root, ordered by page and line. It returns an
// error if a block without a language contains a command, because no test would find this command.
func ReadPages(root string) ([]PageBlock, error) {
	var found []PageBlock
	tree := os.DirFS(root)
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped.MatchString(entry.Name()):
			return fs.SkipDir
		case path.Ext(name) != ".md":
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		for _, b := range splitPage(name, string(text)) {
			if b.Language == "" && unmarked.MatchString(b.Text) {
				return fmt.Errorf("%s: the block contains a command, so it must begin with ```sh", b)
			}
			if slices.Contains(languages, b.Language) {
				found = append(found, b)
			}
		}
		return nil
	})
	return found, err
}

// splitPage returns all blocks of a page.
func splitPage(page, text string) (blocks []PageBlock) {
	var open *PageBlock
	number := 0
	for line := range strings.Lines(text) {
		number++
		found := fence.FindStringSubmatch(strings.TrimRight(line, "\n"))
		switch {
		case found == nil && open != nil:
			open.Text += line
		case found != nil && open == nil:
			open = &PageBlock{Page: page, Line: number + 1, Language: found[1]}
		case found != nil:
			blocks, open = append(blocks, *open), nil
		}
	}
	return blocks
}

// PageBlocks returns the blocks that pageIndex assigns to the test.
func PageBlocks(root, test string) ([]PageBlock, error) {
	all, err := ReadPages(root)
	if err != nil {
		return nil, err
	}
	var found []PageBlock
	for _, b := range all {
		if e, ok := findEntry(b); ok && e.Test == test {
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the index assigns no block to %s", test)
	}
	return found, nil
}

var (
	placesACall      = regexp.MustCompile(`(?m)^make demo\b`)
	preparesTheStack = regexp.MustCompile(`(?m)^((\S+=\S+ )*make|git clone) .*$`)
)

// PageScript returns the blocks as one shell script. It replaces `make demo` by the command of that
// target, and omits the other make targets and `git clone`: the test has built and started the
// stack.
func PageScript(blocks []PageBlock) string {
	var script strings.Builder
	for _, b := range blocks {
		text := placesACall.ReplaceAllString(b.Text, "bin/ringfence demo")
		script.WriteString(preparesTheStack.ReplaceAllString(text, ""))
	}
	return script.String()
}
