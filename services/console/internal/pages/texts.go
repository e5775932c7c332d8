package pages

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

//go:embed texts
var textFiles embed.FS

// defaultLanguage is used if the browser prefers none of the languages.
const defaultLanguage = "en"

// catalogue maps the keys of one language to its texts. A text can contain {0}, {1}, … for values.
type catalogue map[string]string

// readCatalogues reads texts/<language>/*.json. A group of pages has one file in each language.
func readCatalogues() (map[string]catalogue, error) {
	found := map[string]catalogue{}
	err := fs.WalkDir(textFiles, "texts", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := textFiles.ReadFile(name)
		if err != nil {
			return err
		}
		var texts catalogue
		if err := json.Unmarshal(content, &texts); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		language := strings.Split(name, "/")[1]
		if found[language] == nil {
			found[language] = catalogue{}
		}
		for key := range texts {
			if _, twice := found[language][key]; twice {
				return fmt.Errorf("%s: the key %s is in another file, too", name, key)
			}
		}
		maps.Copy(found[language], texts)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the catalogues: %w", err)
	}
	return found, nil
}

// text returns the text of a key. A key without a text is returned as it is.
func (c catalogue) text(key string, args ...any) string {
	text, ok := c[key]
	if !ok {
		return key
	}
	return insert(text, args)
}

func insert(text string, args []any) string {
	for i, arg := range args {
		text = strings.ReplaceAll(text, "{"+strconv.Itoa(i)+"}", textOf(arg))
	}
	return text
}

// count returns the text of key.one for the number 1, and of key.other for any other number. {0} in
// the text is the number.
func (c catalogue) count(key string, n int, args ...any) string {
	form := ".other"
	if n == 1 {
		form = ".one"
	}
	return c.text(key+form, append([]any{n}, args...)...)
}

// countAny is count for templates: the fields of the API have several integer types.
func (c catalogue) countAny(key string, number any, args ...any) (string, error) {
	n, ok := floatOf(number)
	if !ok {
		return "", fmt.Errorf("text %s: %v is not a number", key, number)
	}
	return c.count(key, int(n), args...), nil
}

// textOr returns the text of prefix+value. If the catalogue has none, it returns the value itself,
// because the API can get new values.
func (c catalogue) textOr(prefix string, value any) string {
	name := textOf(value)
	if text, ok := c[prefix+name]; ok {
		return text
	}
	return strings.ReplaceAll(name, "_", " ")
}

// language returns the language of a request: the language that the person chose, or the first
// language in Accept-Language that the console has.
func (s *Server) language(r *http.Request) string {
	known := s.templates.languages()
	if chosen := valueOf(r, s.cookies.language); slices.Contains(known, chosen) {
		return chosen
	}
	for entry := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		tag, _, _ := strings.Cut(entry, ";")
		tag, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(tag)), "-")
		if slices.Contains(known, tag) {
			return tag
		}
	}
	return defaultLanguage
}
