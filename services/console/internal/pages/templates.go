package pages

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

//go:embed templates
var templateFiles embed.FS

// templates are the parsed pages, for each language. Each page has its own set: the layouts, the
// parts and its file, which defines the template "content".
type templates struct {
	texts map[string]catalogue
	pages map[string]map[string]*template.Template // by language and page
}

// layouts are the files that belong to the set of every page.
var layouts = []string{"templates/layout.html", "templates/parts.html"}

func parseTemplates(a *assets) (*templates, error) {
	texts, err := readCatalogues()
	if err != nil {
		return nil, err
	}
	icons, err := readIcons()
	if err != nil {
		return nil, err
	}
	entries, err := templateFiles.ReadDir("templates")
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	t := &templates{texts: texts, pages: map[string]map[string]*template.Template{}}
	for language, words := range texts {
		base, err := template.New("").Funcs(functions(language, words, icons, a)).ParseFS(templateFiles, layouts...)
		if err != nil {
			return nil, fmt.Errorf("parse layouts: %w", err)
		}
		t.pages[language] = map[string]*template.Template{}
		for _, entry := range entries {
			file := path.Join("templates", entry.Name())
			if slices.Contains(layouts, file) {
				continue
			}
			page, err := base.Clone()
			if err == nil {
				page, err = page.ParseFS(templateFiles, file)
			}
			if err != nil {
				return nil, fmt.Errorf("parse %s: %w", file, err)
			}
			t.pages[language][strings.TrimSuffix(entry.Name(), ".html")] = page
		}
	}
	return t, nil
}

func (t *templates) languages() []string { return slices.Sorted(maps.Keys(t.texts)) }

func (t *templates) text(language, key string, args ...any) string {
	return t.texts[language].text(key, args...)
}

func (t *templates) execute(w io.Writer, v *visit, result view) error {
	page, ok := t.pages[v.settings.Language][result.template]
	if !ok {
		return fmt.Errorf("no template %s", result.template)
	}
	return page.ExecuteTemplate(w, "layout", newPageData(v, result))
}

// functions are the functions of templates that depend on the language only.
func functions(language string, words catalogue, icons map[string]string, a *assets) template.FuncMap {
	return template.FuncMap{
		"t":      words.text,
		"n":      words.countAny,
		"word":   words.textOr,
		"asset":  a.url,
		"number": func(n any) string { return formatNumber(language, n) },
		"money":  func(amount any, currency string) string { return formatMoney(language, amount, currency) },
		"seconds": func(n any) string {
			return formatSeconds(n)
		},
		"tone": tone,
		"initial": func(name string) string {
			for _, r := range name {
				return string(r)
			}
			return "?"
		},
		"icon": func(name string) (template.HTML, error) {
			body, ok := icons[name]
			if !ok {
				return "", fmt.Errorf("no icon %s in static/icons.json", name)
			}
			return template.HTML(
				`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">` + body + `</svg>`,
			), nil //nolint:gosec // an embedded file
		},
		"dict": dict,
	}
}

// dict makes a map of alternating keys and values, to pass several values to a part.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict has %d arguments, want pairs", len(pairs))
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		key, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: key %v is no text", pairs[i])
		}
		m[key] = pairs[i+1]
	}
	return m, nil
}

func readIcons() (icons map[string]string, err error) {
	content, err := staticFiles.ReadFile("static/icons.json")
	if err != nil {
		return nil, fmt.Errorf("read icons: %w", err)
	}
	if err := json.Unmarshal(content, &icons); err != nil {
		return nil, fmt.Errorf("decode icons: %w", err)
	}
	return icons, nil
}
