package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// Settings contains the flags of commands that write an object.
type Settings struct {
	File string   `help:"File with a JSON object, or - for standard input. Use it for secrets." placeholder:"FILE"`
	Set  []string `sep:"none" help:"A field: features.webhooks=true. null clears it. Repeatable." placeholder:"KEY=VALUE"`
}

// Body merges three sources into one object: the file, the flags --set, and flagValues. A later
// source replaces values of an earlier one.
func (s Settings) Body(ctx context.Context, flagValues map[string]any) (map[string]any, error) {
	body := map[string]any{}
	if s.File != "" {
		content, err := Contents(ctx, s.File)
		if err != nil {
			return nil, err
		}
		if body, err = object(content); err != nil {
			return nil, fmt.Errorf("--file %s contains no JSON object: %w", s.File, err)
		}
	}
	for _, field := range s.Set {
		name, text, ok := strings.Cut(field, "=")
		path := strings.Split(name, ".")
		if !ok || slices.Contains(path, "") {
			return nil, fmt.Errorf("--set %s has no field and value: write --set KEY=VALUE", name)
		}
		if isSecret(path[len(path)-1]) {
			return nil, fmt.Errorf("--set %s=… would show a secret to every process of this machine: write it into a file or a pipe, --file FILE or --file -", name)
		}
		var value any = text
		if known, err := decodeJSON([]byte(text)); err == nil {
			value = known
		}
		if _, isNumber := value.(json.Number); isNumber && path[len(path)-1] == "per_minute" {
			value = text // the API has prices as decimal strings
		}
		if err := setField(body, path, value); err != nil {
			return nil, fmt.Errorf("--set %s: %w", name, err)
		}
	}
	for name, value := range flagValues {
		if text, isText := value.(string); !isText || text != "" {
			body[name] = value
		}
	}
	if len(body) == 0 {
		return nil, errors.New("no field was given: use --set KEY=VALUE or --file FILE")
	}
	return body, nil
}

// isSecret reports whether the value of a field must not be an argument of the command line.
func isSecret(field string) bool {
	return slices.Contains([]string{"password", "key", "api_key", "secret", "token"}, strings.ToLower(field))
}

// decodeJSON decodes JSON and keeps numbers as text.
func decodeJSON(content []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err //nolint:wrapcheck // the caller adds context to the error
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more text after the JSON value")
	}
	return value, nil
}

func object(content []byte) (map[string]any, error) {
	value, err := decodeJSON(content)
	if err != nil {
		return nil, err
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("the JSON value is not an object")
	}
	return fields, nil
}

// setField sets one field of the object by its path.
func setField(object map[string]any, path []string, value any) error {
	for _, key := range path[:len(path)-1] {
		inner := map[string]any{}
		if there, ok := object[key]; ok {
			given, isObject := there.(map[string]any)
			if !isObject {
				return fmt.Errorf("%s is not an object", key)
			}
			inner = maps.Clone(given)
		}
		object[key] = inner
		object = inner
	}
	object[path[len(path)-1]] = value
	return nil
}

// Contents reads a file, or standard input for "-".
func Contents(ctx context.Context, file string) ([]byte, error) {
	if file == "-" {
		content, err := io.ReadAll(Stdin(ctx))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return content, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the fields: %w", err)
	}
	return content, nil
}
