// Package pages finds the commands and queries in the Markdown pages of the repository and lists
// the test of each.
package pages

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Block is a code block of a page that contains commands or queries.
type Block struct {
	// Page is the path of the page from the root of the repository.
	Page string
	// Line is the number of the first line after the fence.
	Line int
	// Language is sh, sql or promql.
	Language string
	Text     string
}

// String returns the place of the block, for example README.md:37.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

var (
	// languages are the languages of the blocks that Read returns.
	languages = []string{"sh", "sql", "promql"}
	// skipped matches the folders without pages.
	skipped = regexp.MustCompile(`^(bin|node_modules|testdata|\.[a-z].*)$`)
	fence   = regexp.MustCompile("^ *```([a-z]*)$")
	// unmarked matches a command in a block without a language.
	unmarked = regexp.MustCompile(
		`(?m)^ *(\$ |\S+=\S* )*(make|go|git|curl|docker|helm|kubectl|psql|(bin/)?ringfence(-local)?) `)
)

// Read returns the blocks of all pages under root, ordered by page and line. It returns an error if
// a block without a language contains a command, because no test would find this command.
func Read(root string) ([]Block, error) {
	var found []Block
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
		for _, b := range split(name, string(text)) {
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

// split returns all blocks of a page.
func split(page, text string) (blocks []Block) {
	var open *Block
	number := 0
	for line := range strings.Lines(text) {
		number++
		found := fence.FindStringSubmatch(strings.TrimRight(line, "\n"))
		switch {
		case found == nil && open != nil:
			open.Text += line
		case found != nil && open == nil:
			open = &Block{Page: page, Line: number + 1, Language: found[1]}
		case found != nil:
			blocks, open = append(blocks, *open), nil
		}
	}
	return blocks
}

// Of returns the blocks that the index assigns to the test.
func Of(root, test string) ([]Block, error) {
	all, err := Read(root)
	if err != nil {
		return nil, err
	}
	var found []Block
	for _, b := range all {
		if entry, ok := find(b); ok && entry.Test == test {
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

// Script returns the blocks as one shell script. It replaces `make demo` by the command of that
// target, and omits the other make targets and `git clone`: the test has built and started the
// stack.
func Script(blocks []Block) string {
	var script strings.Builder
	for _, b := range blocks {
		text := placesACall.ReplaceAllString(b.Text, "bin/ringfence demo")
		script.WriteString(preparesTheStack.ReplaceAllString(text, ""))
	}
	return script.String()
}
