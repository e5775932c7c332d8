// Package docs contains the documentation and renders it as a static site with search. The gateway
// serves the site at /docs/guides, and the command build writes it into a folder.
package docs

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

//go:embed *.md */*.md */*/*.md images/*.svg images/*.png reference/*.csv
var sources embed.FS

//go:embed site
var assets embed.FS

// Files maps the relative path of each file of a site, with slashes, to the file's content.
type Files map[string][]byte

// page is one Markdown file.
type page struct {
	source string // the path of the Markdown file
	target string // the path of the HTML file
	title  string
	text   []byte
	html   template.HTML
	parts  []part
}

// part is a section of a page, and the unit of a search result.
type part struct {
	Page  string `json:"page"`
	Title string `json:"title"`
	URL   string `json:"url"`
	Text  string `json:"text"`
}

// Render returns the files of the site: one HTML file and the Markdown source for each page, the
// images, the CSV files of the reference, the search index and llms.txt. Links to files outside
// docs become plain text.
func Render() (Files, error) {
	pages, err := read()
	if err != nil {
		return nil, err
	}
	layout, err := template.ParseFS(assets, "site/page.html")
	if err != nil {
		return nil, fmt.Errorf("parse the layout: %w", err)
	}
	files := Files{}
	var index []part
	for i, p := range pages {
		var out bytes.Buffer
		if err := layout.Execute(&out, view(pages, i)); err != nil {
			return nil, fmt.Errorf("render %s: %w", p.source, err)
		}
		files[p.target], files[p.source] = out.Bytes(), p.text
		index = append(index, p.parts...)
	}
	if files["search.json"], err = json.Marshal(index); err != nil {
		return nil, fmt.Errorf("write the search index: %w", err)
	}
	files["llms.txt"] = list(pages, "")
	return files, errorOf(files.copy(sources, "images"), files.copy(sources, "reference"), files.copy(assets, "site"))
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// copy adds the files of a folder to the site, except the layout file.
func (f Files) copy(from fs.FS, folder string) error {
	return fs.WalkDir(from, folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) == ".html" {
			return err
		}
		content, err := fs.ReadFile(from, name)
		f[name] = content
		return err
	})
}

// List returns an index of all pages in the format of llms.txt. The links begin with base.
func List(base string) ([]byte, error) {
	pages, err := read()
	if err != nil {
		return nil, err
	}
	return list(pages, base), nil
}

func list(pages []page, base string) []byte {
	var out bytes.Buffer
	fmt.Fprint(&out, "# Ringfence\n\n> A self-hosted service that places phone calls through AI agents.\n")
	last := ""
	for _, p := range pages {
		if section := sectionOf(p.source); section != last {
			fmt.Fprintf(&out, "\n## %s\n\n", section)
			last = section
		}
		fmt.Fprintf(&out, "- [%s](%s%s)\n", p.title, base, p.source)
	}
	return out.Bytes()
}

// read parses all pages, in the order of the navigation.
func read() ([]page, error) {
	var pages []page
	err := fs.WalkDir(sources, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		content, err := sources.ReadFile(name)
		if err != nil {
			return err
		}
		p, err := parse(name, content)
		if err == nil {
			pages = append(pages, p)
		}
		return err
	})
	slices.SortStableFunc(pages, byNavigation)
	return pages, err
}

// target returns the path of the HTML file of a Markdown file.
func target(source string) string {
	if folder, file := path.Split(source); file == "README.md" {
		return folder + "index.html"
	}
	return strings.TrimSuffix(source, ".md") + ".html"
}

func parse(source string, content []byte) (page, error) {
	markdown := goldmark.New(
		goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	ids := parser.WithContext(parser.NewContext(parser.WithIDs(anchors{})))
	root := markdown.Parser().Parse(text.NewReader(content), ids)
	p := page{source: source, target: target(source), text: content}
	var outside []*ast.Link
	err := ast.Walk(root, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := node.(type) {
		case *ast.Heading:
			p.heading(n, content)
		case *ast.Link:
			if !p.rewrite(n) {
				outside = append(outside, n)
			}
		case *ast.Text:
			p.add(string(n.Segment.Value(content)))
		case *ast.FencedCodeBlock:
			p.add(string(n.Lines().Value(content)))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return page{}, fmt.Errorf("parse %s: %w", source, err)
	}
	for _, link := range outside {
		unlink(link)
	}
	if p.title == "" {
		return page{}, fmt.Errorf("%s does not begin with a title", source)
	}
	var out bytes.Buffer
	if err := markdown.Renderer().Render(&out, content, root); err != nil {
		return page{}, fmt.Errorf("render %s: %w", source, err)
	}
	p.html = template.HTML(out.String())
	return p, nil
}

// heading begins a new part. The first heading is the title of the page.
func (p *page) heading(n *ast.Heading, content []byte) {
	title := string(n.Lines().Value(content))
	title = strings.NewReplacer("`", "", "*", "").Replace(title)
	if p.title == "" {
		p.title = title
	}
	id, _ := n.AttributeString("id")
	anchor, _ := id.([]byte)
	p.parts = append(p.parts, part{Page: p.title, Title: title, URL: p.target + "#" + string(anchor)})
}

// add appends text to the current section.
func (p *page) add(words string) {
	if len(p.parts) > 0 {
		last := &p.parts[len(p.parts)-1]
		last.Text = strings.TrimSpace(last.Text + " " + strings.Join(strings.Fields(words), " "))
	}
}

// rewrite replaces the target of a link to a Markdown file by the HTML file. It returns false if
// the target is outside of the documentation.
func (p *page) rewrite(link *ast.Link) bool {
	to, anchor, _ := strings.Cut(string(link.Destination), "#")
	if to == "" || strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return true
	}
	file := path.Join(path.Dir(p.source), to)
	if info, err := fs.Stat(sources, file); err == nil && info.IsDir() {
		file, to = path.Join(file, "README.md"), path.Join(to, "README.md")
	}
	if _, err := fs.Stat(sources, file); err != nil {
		return false
	}
	if path.Ext(to) == ".md" {
		to = target(to)
	}
	if anchor != "" {
		to += "#" + anchor
	}
	link.Destination = []byte(to)
	return true
}

// unlink replaces a link by its text.
func unlink(link *ast.Link) {
	parent := link.Parent()
	for child := link.FirstChild(); child != nil; {
		next := child.NextSibling()
		parent.InsertBefore(parent, link, child)
		child = next
	}
	parent.RemoveChild(parent, link)
}
