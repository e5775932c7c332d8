package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const indentation = "  "

func isObject(value json.RawMessage) bool {
	return strings.HasPrefix(strings.TrimSpace(string(value)), "{")
}

// field is a member of an object.
type field struct {
	key   string
	value json.RawMessage
}

// readFields returns the members of an object in their order.
func readFields(object json.RawMessage) (fields []field, err error) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if _, err = decoder.Token(); err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("read the response: %w", err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, fmt.Errorf("read the response: %w", err)
		}
		fields = append(fields, field{fmt.Sprint(key), value})
	}
	return fields, nil
}

// formatObject returns the lines of an object. Each line begins with the indentation in before. The
// values of keys without nested members are aligned.
func (d *Client) formatObject(object json.RawMessage, before string) (string, error) {
	fields, err := readFields(object)
	if err != nil {
		return "", err
	}
	width, blocks := 0, make([]string, len(fields))
	for i, f := range fields {
		if blocks[i], err = d.formatNested(f.value, before+indentation); err != nil {
			return "", err
		}
		if blocks[i] == "" {
			width = max(width, displayWidth(Printable(f.key)))
		}
	}
	var text strings.Builder
	for i, f := range fields {
		key := Printable(f.key)
		text.WriteString(before + key)
		if blocks[i] == "" {
			text.WriteString(strings.Repeat(" ", width-displayWidth(key)+gap) + d.scalar(f.value))
		}
		text.WriteString("\n" + blocks[i])
	}
	return text.String(), nil
}

// scalar returns the text of a value without nested members. The elements of a list are separated
// by commas.
func (d *Client) scalar(value json.RawMessage) string {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil && len(list) > 0 {
		texts := make([]string, len(list))
		for i, item := range list {
			texts[i] = d.scalar(item)
		}
		return strings.Join(texts, ", ")
	}
	text := formatPlain(value)
	if local, ok := d.localTime(text); ok {
		return local
	}
	return text
}

// formatNested returns the lines of an object, or of a list of objects. Each line begins with the
// indentation in before. It returns "" for every other value.
func (d *Client) formatNested(value json.RawMessage, before string) (string, error) {
	var list []json.RawMessage
	if isObject(value) {
		return d.formatObject(value, before)
	}
	_ = json.Unmarshal(value, &list) // list stays empty if value is not a list
	if !slices.ContainsFunc(list, isObject) {
		return "", nil
	}
	if table, ok := d.formatRows(list, before); ok {
		return table, nil
	}
	blocks := make([]string, len(list))
	for i, item := range list {
		block := before + d.scalar(item) + "\n"
		if isObject(item) {
			var err error
			if block, err = d.formatObject(item, before); err != nil {
				return "", err
			}
		}
		blocks[i] = block
	}
	return strings.Join(blocks, "\n"), nil
}

// formatRows returns a table of objects without nested members. It returns false if an object has
// nested members or if the terminal is too narrow.
func (d *Client) formatRows(list []json.RawMessage, before string) (string, bool) {
	var keys []string
	for _, item := range list {
		if !isObject(item) {
			return "", false
		}
		fields, err := readFields(item)
		if err != nil {
			return "", false
		}
		for _, f := range fields {
			if nested, err := d.formatNested(f.value, ""); nested != "" || err != nil {
				return "", false
			}
			if !slices.Contains(keys, f.key) {
				keys = append(keys, f.key)
			}
		}
	}
	rows := [][]string{make([]string, len(keys))}
	for i, key := range keys {
		rows[0][i] = strings.ToUpper(strings.ReplaceAll(Printable(key), "_", " "))
	}
	for _, item := range list {
		row := make([]string, len(keys))
		var members map[string]json.RawMessage
		if json.Unmarshal(item, &members) != nil {
			return "", false
		}
		for i, key := range keys {
			row[i] = d.scalar(members[key])
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(keys))
	if widest := widenColumns(widths, rows); d.columns > 0 && widest+len(before) > d.columns {
		return "", false
	}
	var text strings.Builder
	for line := range strings.Lines(formatAligned(widths, rows)) {
		text.WriteString(before + line)
	}
	return text.String(), true
}
