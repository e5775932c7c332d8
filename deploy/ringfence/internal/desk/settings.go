package desk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
)

// Settings are the fields of a member that a command writes; commands embed it.
type Settings struct {
	File string   `help:"A file with the fields as a JSON object; - reads standard input. Secrets belong here: arguments are seen by every process." placeholder:"FILE"`
	Set  []string `sep:"none" help:"One field, as often as there are: --set max_call_seconds=300, --set features.webhooks=true. What is not JSON is text; null clears." placeholder:"KEY=VALUE"`
}

// Body is the object that the file, then the flags and then named give.
func (s Settings) Body(named map[string]any) (map[string]any, error) {
	body := map[string]any{}
	if s.File != "" {
		content, err := Contents(s.File)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(content, &body); err != nil {
			return nil, fmt.Errorf("--file %s holds no JSON object: %w", s.File, err)
		}
	}
	for _, field := range s.Set {
		path, text, ok := strings.Cut(field, "=")
		if !ok || path == "" {
			return nil, fmt.Errorf("--set %s has no value: write --set KEY=VALUE", field)
		}
		var value any = text
		if json.Valid([]byte(text)) {
			value = json.RawMessage(text)
		}
		if err := put(body, strings.Split(path, "."), value); err != nil {
			return nil, fmt.Errorf("--set %s: %w", field, err)
		}
	}
	for name, value := range named {
		if text, isText := value.(string); !isText || text != "" {
			body[name] = value
		}
	}
	if len(body) == 0 {
		return nil, errors.New("there is nothing to write: name fields with --set KEY=VALUE or --file FILE")
	}
	return body, nil
}

// put sets one field below the object, by its path.
func put(object map[string]any, path []string, value any) error {
	for _, key := range path[:len(path)-1] {
		inner := map[string]any{}
		if there, ok := object[key]; ok {
			given, isObject := there.(map[string]any)
			if !isObject {
				return fmt.Errorf("%s is no object", key)
			}
			inner = maps.Clone(given)
		}
		object[key] = inner
		object = inner
	}
	object[path[len(path)-1]] = value
	return nil
}

// Contents reads a file, or standard input.
func Contents(file string) ([]byte, error) {
	if file == "-" {
		content, err := io.ReadAll(os.Stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return content, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read what is to be written: %w", err)
	}
	return content, nil
}
