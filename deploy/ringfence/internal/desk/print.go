package desk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Table prints members under their columns' headings; where the terminal is too narrow for that, one after the other.
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
	headings, paths := make([]string, len(columns)), make([]string, len(columns))
	for i, column := range columns {
		heading, path, named := strings.Cut(column, "=")
		if !named {
			path = heading
		}
		headings[i], paths[i] = strings.ToUpper(strings.ReplaceAll(heading, "_", " ")), path
	}
	rows := make([][]string, 0, 1+len(members))
	rows = append(rows, headings)
	for _, member := range members {
		row := make([]string, len(paths))
		for i, path := range paths {
			row[i] = brief(find(member, path))
		}
		rows = append(rows, row)
	}
	text, widest := aligned(rows)
	if d.columns > 0 && widest > d.columns {
		text = blocks(rows)
	}
	return d.write(text)
}

// aligned is rows as columns, two spaces apart, and the cells that the widest line takes.
func aligned(rows [][]string) (text string, widest int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], cells(cell))
		}
	}
	var page strings.Builder
	for _, row := range rows {
		taken := 0
		for i, cell := range row {
			page.WriteString(cell)
			if taken += cells(cell); i < len(row)-1 {
				pad := widths[i] - cells(cell) + 2
				page.WriteString(strings.Repeat(" ", pad))
				taken += pad
			}
		}
		page.WriteByte('\n')
		widest = max(widest, taken)
	}
	return page.String(), widest
}

// blocks is each row under the first as a member of its own.
func blocks(rows [][]string) string {
	var page strings.Builder
	for n, row := range rows[1:] {
		if n > 0 {
			page.WriteByte('\n')
		}
		lines := make([][]string, len(row))
		for i, cell := range row {
			lines[i] = []string{rows[0][i], cell}
		}
		text, _ := aligned(lines)
		page.WriteString(text)
	}
	return page.String()
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
	var lines [][]string
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		lines = append(lines, []string{Printable(fmt.Sprint(key)), d.fitting(plain(value), value)})
	}
	if len(lines) == 0 {
		return nil
	}
	text, _ := aligned(lines)
	return d.write(text)
}

// fitting is text as it is, or the value over many lines where it is JSON that the terminal is too narrow for.
func (d *Desk) fitting(text string, value json.RawMessage) string {
	const deepest = 20
	if d.columns == 0 || value[0] != '{' && value[0] != '[' || cells(text)+deepest <= d.columns {
		return text
	}
	var page bytes.Buffer
	if json.Indent(&page, value, "  ", "  ") != nil {
		return text
	}
	return "\n  " + Escaped(page.Bytes())
}

func (d *Desk) indented(value json.RawMessage) error {
	var text bytes.Buffer
	if err := json.Indent(&text, value, "", "  "); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return d.write(Escaped(text.Bytes()) + "\n")
}

func (d *Desk) write(text string) error {
	if _, err := fmt.Fprint(d.out, text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
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
		return Escaped(compact.Bytes())
	}
	return Printable(text)
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
