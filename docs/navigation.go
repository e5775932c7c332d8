package docs

import (
	"cmp"
	"html/template"
	"path"
	"slices"
	"strings"
)

// navigation lists the sections with their pages, in the order in which a newcomer reads them. An
// entry can be a folder, which means all pages of the folder.
var navigation = []struct {
	title string
	pages []string
}{
	{"Start", []string{"README.md", "quick-start.md", "console.md", "webhooks.md", "place-a-call.md", "test-numbers.md"}},
	{"Build", []string{
		"errors-and-retries.md", "compliance.md", "ai-agents.md", "media-stream-agents.md", "recordings.md", "billing.md",
	}},
	{"SIP trunks", []string{"sip-trunks/README.md", "sip-trunks"}},
	{"Operate", []string{"deploy", "operate.md", "configure.md", "kafka.md", "scale.md", "security.md", "releases.md"}},
	{"Runbooks", []string{"runbooks/README.md", "runbooks"}},
	{"Reference", []string{"reference/api/README.md", "reference/api", "reference", "glossary.md"}},
	{"Contribute", []string{"architecture.md", "contribute.md", "test.md", "adr/README.md", "adr"}},
}

// position returns the section of a page and the page's index in the section. The index is -1 if no
// section lists the page.
func position(source string) (section, index int) {
	for s, one := range navigation {
		if i := slices.Index(one.pages, source); i >= 0 {
			return s, i
		}
	}
	for s, one := range navigation {
		for i, entry := range one.pages {
			if path.Ext(entry) == "" && strings.HasPrefix(source, entry+"/") {
				return s, i
			}
		}
	}
	return -1, 0
}

func sectionOf(source string) string {
	if section, _ := position(source); section >= 0 {
		return navigation[section].title
	}
	return ""
}

func byNavigation(a, b page) int {
	sectionA, indexA := position(a.source)
	sectionB, indexB := position(b.source)
	return cmp.Or(cmp.Compare(sectionA, sectionB), cmp.Compare(indexA, indexB), strings.Compare(a.source, b.source))
}

// layout contains the values that the template page.html renders.
type layout struct {
	Title string
	// Root is the relative path from the page to the root of the site: empty, or "../" repeated.
	Root     string
	Source   string
	Content  template.HTML
	Sections []section
	Previous *link
	Next     *link
}

type section struct {
	Title string
	Links []link
}

type link struct {
	Title   string
	URL     string
	Current bool
}

func view(pages []page, at int) layout {
	current := pages[at]
	l := layout{
		Title: current.title, Root: strings.Repeat("../", strings.Count(current.target, "/")),
		Source: path.Base(current.source), Content: current.html,
	}
	for i, p := range pages {
		title := sectionOf(p.source)
		if len(l.Sections) == 0 || l.Sections[len(l.Sections)-1].Title != title {
			l.Sections = append(l.Sections, section{Title: title})
		}
		last := &l.Sections[len(l.Sections)-1]
		last.Links = append(last.Links, link{Title: p.title, URL: l.Root + p.target, Current: i == at})
	}
	if at > 0 {
		l.Previous = &link{Title: pages[at-1].title, URL: l.Root + pages[at-1].target}
	}
	if at+1 < len(pages) {
		l.Next = &link{Title: pages[at+1].title, URL: l.Root + pages[at+1].target}
	}
	return l
}
