package main

import (
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestMarkdown_RingfenceCommandsAreValid(t *testing.T) {
	t.Parallel()
	found := 0
	err := fs.WalkDir(os.DirFS("../.."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := len(path) > 1 && entry.Name()[0] == '.'
		foreign := entry.Name() == "node_modules" || path == "bin"
		if entry.IsDir() && (hidden || foreign) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := fs.ReadFile(os.DirFS("../.."), path)
		if err != nil {
			return err
		}
		for _, line := range commandLines(string(text)) {
			found++
			if err := understood(line); err != nil {
				t.Errorf("%s: ringfence %s: %v", path, strings.Join(line, " "), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 40 {
		t.Errorf("command lines in the pages = %d, want at least 40", found)
	}
	for _, wrong := range []string{"```sh\nringfence trunks list --every\n```", "`ringfence trunk list`", "`ringfence trunk`", "```\nbin/ringfence keys add x --access all   # no such access\n```"} {
		lines := commandLines(wrong)
		if len(lines) != 1 {
			t.Fatalf("command lines in %q = %d, want 1", wrong, len(lines))
		}
		if understood(lines[0]) == nil {
			t.Errorf("%q was accepted, want an error", wrong)
		}
	}
}

var (
	line   = regexp.MustCompile(`^\s*(?:\$ )?(?:bin/)?ringfence (.+)$`)
	inline = regexp.MustCompile("`(?:bin/)?ringfence ([^`]+)`")
	remark = regexp.MustCompile(`\s+#.*$`)
	word   = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
)

// commandLines returns the arguments of each ringfence command line on a page. A line that ends
// with a backslash continues on the next line. A command line with "…" is incomplete and left out.
func commandLines(page string) (lines [][]string) {
	var found [][]string
	block, inside := "", false
	for l := range strings.Lines(strings.ReplaceAll(page, "\\\n", " ")) {
		l = strings.TrimRight(l, "\n")
		if kind, fenced := strings.CutPrefix(strings.TrimSpace(l), "```"); fenced {
			block, inside = kind, !inside
			continue
		}
		switch {
		case !inside:
			found = append(found, inline.FindAllStringSubmatch(l, -1)...)
		case slices.Contains([]string{"", "sh", "bash", "console", "text"}, block):
			found = append(found, line.FindAllStringSubmatch(l, -1)...)
		}
	}
	for _, l := range found {
		words := word.FindAllString(remark.ReplaceAllString(l[1], ""), -1)
		if slices.Contains(words, "…") {
			continue
		}
		// The shell handles > and &.
		if end := slices.IndexFunc(words, func(w string) bool { return w == ">" || w == "&" }); end >= 0 {
			words = words[:end]
		}
		for i, w := range words {
			words[i] = strings.Trim(w, `'"`)
		}
		if len(words) == 1 { // the page names a group of commands, such as `ringfence services`
			words = append(words, "--help")
		}
		lines = append(lines, words)
	}
	return lines
}

func understood(args []string) error {
	var cli commands
	helped := false
	parser, err := cli.parser(io.Discard, io.Discard, func(int) { helped = true })
	if err != nil {
		return err
	}
	if _, err = parser.Parse(args); helped {
		return nil
	}
	return err
}
