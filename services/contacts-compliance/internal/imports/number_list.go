package imports

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"ringfence.dev/libs/phone"
)

// BadLine is a line that contains no valid number.
type BadLine struct {
	Line   int64  `json:"line"`
	Value  string `json:"value"`
	Reason string `json:"reason"`
}

const (
	maxLine  = 8 << 10 // bytes
	maxShown = 40      // the maximum number of characters of a bad value in a BadLine
)

// numberHeadings returns the known headings of the column with the numbers. If the first line has
// none of them, the numbers are in the first column.
func numberHeadings() []string {
	return []string{"phone_e164", "phone", "phone_number", "number", "telephone", "msisdn"}
}

// ListReader reads numbers from a CSV file. Its memory does not depend on the length of the file.
type ListReader struct {
	lines  *bufio.Reader
	line   int64
	column int
	comma  rune
	// headingRead is true after the line that may contain headings was read. utf16 is true if the
	// file is UTF-16.
	headingRead, utf16 bool
}

// NewListReader returns a reader of a list.
func NewListReader(from io.Reader) *ListReader {
	return &ListReader{lines: bufio.NewReaderSize(from, maxLine), comma: ','}
}

// Line returns the number of lines that were read.
func (r *ListReader) Line() int64 { return r.line }

// Next returns the next number or the next bad line, and io.EOF at the end. It skips empty lines, a
// byte order mark, a line of headings, and the line in which spreadsheets declare the separator
// ("sep=;").
func (r *ListReader) Next() (number phone.Number, bad *BadLine, err error) {
	for {
		text, whole, err := r.readLine()
		if err != nil {
			return "", nil, err
		}
		if r.line == 1 {
			r.utf16 = strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff")
			text = strings.TrimPrefix(text, "\ufeff")
		}
		switch {
		case r.utf16:
			return "", r.bad(text, "the file is UTF-16: save it as CSV in UTF-8"), nil
		case !whole:
			return "", r.bad(text, "the line is longer than 8192 bytes"), nil
		case strings.TrimSpace(text) == "", !r.headingRead && r.parseHeading(text):
			continue
		}
		fields := r.fields(text)
		if r.column >= len(fields) {
			return "", r.bad(text, "the line has no column with a number"), nil
		}
		value := strings.TrimSpace(fields[r.column])
		number, ok := phone.Parse(removeSeparators(value))
		if !ok {
			return "", r.bad(value, "not E.164: a plus and 7 to 15 digits, such as +14155550123"), nil
		}
		return number, nil, nil
	}
}

func removeSeparators(value string) string {
	const signs = " -.()\u00a0"
	if !strings.ContainsAny(value, signs) {
		return value
	}
	return strings.Map(func(char rune) rune {
		if strings.ContainsRune(signs, char) {
			return -1
		}
		return char
	}, value)
}

// readLine returns the next line without its line ending. If the line is too long, whole is false
// and only the beginning of the line is returned.
func (r *ListReader) readLine() (text string, whole bool, err error) {
	line, err := r.lines.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	r.line++
	if err == nil {
		return string(bytes.TrimRight(line, "\r\n")), true, nil
	}
	if !errors.Is(err, bufio.ErrBufferFull) {
		r.line--
		return "", false, err
	}
	text = string(line[:200])
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = r.lines.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false, err
	}
	return text, false, nil
}

// parseHeading reports whether a first line is a line of headings or a "sep=" line. It sets the
// separator and the column of the numbers.
func (r *ListReader) parseHeading(text string) bool {
	if parts, ok := strings.CutPrefix(text, "sep="); ok && len(parts) == 1 && strings.ContainsAny(parts, ",;\t") {
		return true // the line of headings determines the separator
	}
	r.headingRead = true
	for _, r.comma = range []rune{',', ';', '\t'} {
		for i, name := range r.fields(text) {
			if slices.Contains(numberHeadings(), strings.ToLower(strings.TrimSpace(name))) {
				r.column = i
				return true
			}
		}
	}
	r.comma = ','
	for _, other := range []rune{';', '\t'} {
		if strings.ContainsRune(text, other) && !strings.ContainsRune(text, ',') {
			r.comma = other
		}
	}
	return false
}

func (r *ListReader) fields(text string) []string {
	if !strings.ContainsRune(text, '"') {
		return strings.Split(text, string(r.comma))
	}
	quoted := csv.NewReader(strings.NewReader(text))
	quoted.Comma, quoted.LazyQuotes, quoted.FieldsPerRecord = r.comma, true, -1
	fields, err := quoted.Read()
	if err != nil {
		return nil
	}
	return fields
}

func (r *ListReader) bad(value, reason string) *BadLine {
	value = strings.Map(func(char rune) rune {
		if char < ' ' || char == utf8.RuneError {
			return '?'
		}
		return char
	}, strings.ToValidUTF8(value, "?"))
	if utf8.RuneCountInString(value) > maxShown {
		value = string([]rune(value)[:maxShown]) + "…"
	}
	return &BadLine{Line: r.line, Value: value, Reason: reason}
}
