package pages

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var placeholder = regexp.MustCompile(`\{\d\}`)

func TestCatalogues_HaveTheSameKeysAndPlaceholders(t *testing.T) {
	t.Parallel()
	catalogues, err := readCatalogues()
	if err != nil {
		t.Fatal(err)
	}
	english := catalogues[defaultLanguage]
	for language, texts := range catalogues {
		for _, key := range slices.Sorted(maps.Keys(english)) {
			text, ok := texts[key]
			if !ok || strings.TrimSpace(text) == "" {
				t.Errorf("%s has no text for %s", language, key)
				continue
			}
			got, want := slices.Sorted(
				slices.Values(placeholder.FindAllString(text, -1)),
			), slices.Sorted(
				slices.Values(placeholder.FindAllString(english[key], -1)),
			)
			if !slices.Equal(got, want) {
				t.Errorf("%s: placeholders of %s = %v, want %v", language, key, got, want)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(texts)) {
			if _, ok := english[key]; !ok {
				t.Errorf("%s has the key %s, which English does not have", language, key)
			}
		}
	}
}

var (
	usedText  = regexp.MustCompile(`\{\{-?\s*t "([^"]+)"|\(t "([^"]+)"`)
	usedCount = regexp.MustCompile(`\bn "([^"]+)"`)
	comment   = regexp.MustCompile(`(?s)\{\{/\*.*?\*/\}\}`)
	action    = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	element   = regexp.MustCompile(`(?s)<[^>]*>`)
	attribute = regexp.MustCompile(`\s(?:placeholder|title|aria-label|alt)="([^"]*)"`)
	letters   = regexp.MustCompile(`\p{L}{2,}`)
)

func TestTemplates_TakeTextsFromTheCatalogue(t *testing.T) {
	t.Parallel()
	english, files := templateSources(t)
	for name, source := range files {
		for _, match := range usedText.FindAllStringSubmatch(source, -1) {
			if key := match[1] + match[2]; english[key] == "" {
				t.Errorf("%s uses the key %s, which has no text", name, key)
			}
		}
		for _, match := range usedCount.FindAllStringSubmatch(source, -1) {
			for _, form := range []string{".one", ".other"} {
				if english[match[1]+form] == "" {
					t.Errorf("%s uses the key %s, which has no text", name, match[1]+form)
				}
			}
		}
		bare := action.ReplaceAllString(comment.ReplaceAllString(source, ""), "")
		for _, match := range attribute.FindAllStringSubmatch(bare, -1) {
			if letters.MatchString(match[1]) && strings.ToUpper(match[1]) != match[1] {
				t.Errorf("%s has the text %q in an attribute", name, match[1])
			}
		}
		if words := letters.FindAllString(element.ReplaceAllString(bare, ""), -1); len(words) > 0 {
			t.Errorf("%s has the text %q", name, words)
		}
	}
}

// The content security policy forbids inline styles and scripts, so a page with them would not
// work.
func TestTemplates_HaveNoInlineStylesOrScripts(t *testing.T) {
	t.Parallel()
	_, files := templateSources(t)
	refused := regexp.MustCompile(`\sstyle="|\son\w+="|<style|<script>|javascript:|hx-on|hx-vars`)
	for name, source := range files {
		if found := refused.FindString(source); found != "" {
			t.Errorf("%s contains %q", name, found)
		}
	}
}

func templateSources(t *testing.T) (catalogue, map[string]string) {
	t.Helper()
	catalogues, err := readCatalogues()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := templateFiles.ReadDir("templates")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		source, err := templateFiles.ReadFile("templates/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = string(source)
	}
	return catalogues[defaultLanguage], files
}
