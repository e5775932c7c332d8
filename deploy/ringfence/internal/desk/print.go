package desk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
)

// Table prints members under their columns' headings.
func (d *Desk) Table(members []json.RawMessage, columns []string) error {
	if d.json {
		whole, err := json.Marshal(members)
		if err != nil {
			return fmt.Errorf("encode the list: %w", err)
		}
		return d.indented(whole)
	}
	if len(members) == 0 {
		d.Remark("There is none.")
		return nil
	}
	lines := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	headings, paths := make([]string, len(columns)), make([]string, len(columns))
	for i, column := range columns {
		heading, path, named := strings.Cut(column, "=")
		if !named {
			path = heading
		}
		headings[i], paths[i] = strings.ToUpper(strings.ReplaceAll(heading, "_", " ")), path
	}
	_, _ = fmt.Fprintln(lines, strings.Join(headings, "\t")) // Flush tells of the writer's fault
	for _, member := range members {
		cells := make([]string, len(paths))
		for i, path := range paths {
			cells[i] = brief(find(member, path))
		}
		_, _ = fmt.Fprintln(lines, strings.Join(cells, "\t"))
	}
	return lines.Flush()
}

// Member prints one line a key, in the order in which they came.
func (d *Desk) Member(member json.RawMessage) error {
	if d.json {
		return d.indented(member)
	}
	decoder := json.NewDecoder(bytes.NewReader(member))
	if opening, err := decoder.Token(); err != nil || opening != json.Delim('{') {
		return d.indented(member)
	}
	lines := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		_, _ = fmt.Fprintf(lines, "%s\t%s\n", key, plain(value))
	}
	return lines.Flush()
}

func (d *Desk) indented(value json.RawMessage) error {
	var text bytes.Buffer
	if err := json.Indent(&text, value, "", "  "); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	_, err := fmt.Fprintln(d.out, text.String())
	return err
}

// find follows a path of keys; what is not there is nothing.
func find(value json.RawMessage, path string) json.RawMessage {
	for key := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return nil
		}
		value = object[key]
	}
	return value
}

// plain is a value as a person reads it: text without quotes and on one line, "-" for nothing, the rest as JSON.
func plain(value json.RawMessage) string {
	if len(value) == 0 || string(value) == "null" {
		return "-"
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		var compact bytes.Buffer
		if json.Compact(&compact, value) != nil {
			return "-"
		}
		return compact.String()
	}
	return printable(text)
}

// printable keeps what others wrote from steering the terminal it is printed on.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

// mostCell bounds a cell of a table, in characters; the member shows the whole.
const mostCell = 60

func brief(value json.RawMessage) string {
	text := []rune(plain(value))
	if len(text) > mostCell {
		return string(text[:mostCell-1]) + "…"
	}
	return string(text)
}
