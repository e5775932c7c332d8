package operator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Table prints objects as a table. If the terminal is too narrow, it prints the objects one after
// the other.
func (d *Client) Table(members []json.RawMessage, columns []string) error {
	l := d.list(columns)
	return errors.Join(l.add(members), l.closeArray())
}

// tableList is a table that is printed page by page. A later page can make a column wider, but not
// narrower.
type tableList struct {
	*Client
	headings, paths []string
	widths          []int
	printed         int
	// isFolded is set when a page was too wide for the terminal. After that, objects are printed
	// one after the other.
	isFolded bool
}

func (d *Client) list(columns []string) *tableList {
	l := &tableList{Client: d, headings: make([]string, len(columns)), paths: make([]string, len(columns)),
		widths: make([]int, len(columns))}
	for i, column := range columns {
		heading, path, named := strings.Cut(column, "=")
		if !named {
			path = heading
		}
		l.headings[i], l.paths[i] = strings.ToUpper(strings.ReplaceAll(heading, "_", " ")), path
	}
	return l
}

func (l *tableList) add(members []json.RawMessage) (err error) {
	if len(members) == 0 {
		return nil
	}
	var text string
	if l.JSON() {
		text, err = l.formatElements(members)
	} else {
		text = l.rows(members)
	}
	if err == nil {
		err = l.write(text)
	}
	l.printed += len(members)
	return err
}

func (l *tableList) closeArray() error {
	switch {
	case l.JSON() && l.printed == 0:
		return l.write("[]\n")
	case l.JSON():
		return l.write("\n]\n")
	case l.printed == 0:
		l.Remark("The list is empty.")
	}
	return nil
}

// formatElements formats a page as elements of a JSON array. closeArray closes the array.
func (l *tableList) formatElements(members []json.RawMessage) (string, error) {
	var text bytes.Buffer
	for i, member := range members {
		before := ",\n  "
		if l.printed+i == 0 {
			before = "[\n  "
		}
		text.WriteString(before)
		if err := json.Indent(&text, member, "  ", "  "); err != nil {
			return "", fmt.Errorf("read the response: %w", err)
		}
	}
	return Escaped(text.Bytes()), nil
}

func (l *tableList) rows(members []json.RawMessage) string {
	rows := [][]string{l.headings}
	short := map[string]int{} // the number of rows with each short id
	for _, member := range members {
		short[l.cell("id", valueAt(member, "id"))]++
	}
	for _, member := range members {
		row := make([]string, len(l.paths))
		for i, path := range l.paths {
			value := valueAt(member, path)
			row[i] = l.cell(path, value)
			if path == "id" && short[row[i]] > 1 {
				row[i] = formatPlain(value)
			}
		}
		rows = append(rows, row)
	}
	l.isFolded = l.isFolded || widenColumns(l.widths, rows) > l.columns && l.columns > 0
	switch {
	case l.isFolded && l.printed > 0:
		return "\n" + formatBlocks(rows)
	case l.isFolded:
		return formatBlocks(rows)
	case l.printed > 0:
		rows = rows[1:]
	}
	return formatAligned(l.widths, rows)
}

// widenColumns increases each column to the width of its widest cell, and returns the width of the
// widest line. The last column has no padding.
func widenColumns(widths []int, rows [][]string) (widest int) {
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], displayWidth(cell))
		}
	}
	for _, width := range widths {
		widest += width + gap
	}
	return widest - gap
}

const gap = 2

// formatAligned formats rows with columns of the given widths.
func formatAligned(widths []int, rows [][]string) string {
	var page strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			page.WriteString(cell)
			if i < len(row)-1 {
				page.WriteString(strings.Repeat(" ", widths[i]-displayWidth(cell)+gap))
			}
		}
		page.WriteByte('\n')
	}
	return page.String()
}

// formatPairs formats rows of two columns, a key and its value.
func formatPairs(rows [][]string) string {
	widths := make([]int, 2)
	widenColumns(widths, rows)
	return formatAligned(widths, rows)
}

// formatBlocks formats each row as several lines, one line per column. The first row contains the
// headings.
func formatBlocks(rows [][]string) string {
	members := make([]string, 0, len(rows))
	for _, row := range rows[1:] {
		lines := make([][]string, len(row))
		for i, cell := range row {
			lines[i] = []string{rows[0][i], cell}
		}
		members = append(members, formatPairs(lines))
	}
	return strings.Join(members, "\n")
}

// Member prints an object with one line per key, in the order of the response. Objects and lists of
// objects are indented below their key.
func (d *Client) Member(member json.RawMessage) error {
	if d.JSON() || !isObject(member) {
		return d.indented(member)
	}
	text, err := d.formatObject(member, "")
	if err != nil {
		return err
	}
	return d.write(text)
}

func (d *Client) indented(value json.RawMessage) error {
	var text bytes.Buffer
	if err := json.Indent(&text, value, "", "  "); err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	return d.write(Escaped(text.Bytes()) + "\n")
}

func (d *Client) write(text string) error {
	if _, err := fmt.Fprint(d.out, text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// valueAt follows a path of keys in a JSON value and returns nil if there is no value. If the value
// is a list, it returns the values of all members of the list.
func valueAt(value json.RawMessage, path string) json.RawMessage {
	var list []json.RawMessage
	for key := range strings.SplitSeq(path, ".") {
		if json.Unmarshal(value, &list) == nil && list != nil {
			return valuesOf(list, key)
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return nil
		}
		value = object[key]
	}
	return value
}

// valuesOf returns the values of one key from all members of a list, formatted for people.
func valuesOf(list []json.RawMessage, key string) json.RawMessage {
	found := make([]string, len(list))
	for i, member := range list {
		found[i] = formatPlain(valueAt(member, key))
	}
	text, err := json.Marshal(strings.Join(found, " "))
	if err != nil {
		return nil
	}
	return text
}

// formatPlain formats a value for people: a string as one line without quotes, null as "-", any
// other value as JSON.
func formatPlain(value json.RawMessage) string {
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

// maxCell is the largest number of characters in a cell. Show prints the whole value.
const maxCell = 60

// cell returns the text of a value in a table. Times are local. With the output format Table, ids
// are short.
func (d *Client) cell(path string, value json.RawMessage) string {
	plain := formatPlain(value)
	if local, ok := d.localTime(plain); ok {
		return local
	}
	key := path[strings.LastIndexByte(path, '.')+1:]
	if d.output == Table && (key == "id" || strings.HasSuffix(key, "_id")) && wholeID.MatchString(plain) {
		return plain[:shortLength]
	}
	text := []rune(plain)
	if len(text) > maxCell {
		return string(text[:maxCell-1]) + "…"
	}
	return plain
}
