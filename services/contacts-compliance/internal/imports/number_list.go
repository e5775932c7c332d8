// Package dndlist owns how a list of people who must not be called is written: CSV with one number a line. It reads a stream a line at a time and
// judges each; what becomes of the numbers is not its matter.

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

// Bad is a line that holds no number.
type Bad struct {
	Line   int64  `json:"line"`
	Value  string `json:"value"`
	Reason string `json:"reason"`
}

const (
	longest   = 8 << 10 // bytes of a line
	mostValue = 40      // characters of it that are shown
)

// headings name the column with the numbers; without one of them in the first line it is the first column.
func headings() []string {
	return []string{"phone_e164", "phone", "phone_number", "number", "telephone", "msisdn"}
}

// Reader reads one list in memory that does not grow with it.
type Reader struct {
	lines  *bufio.Reader
	line   int64
	column int
	comma  rune
	// begun: the line that may name the columns was read. wide: the file is UTF-16.
	begun, wide bool
}

// NewReader reads from the beginning of a list.
func NewReader(from io.Reader) *Reader {
	return &Reader{lines: bufio.NewReaderSize(from, longest), comma: ','}
}

// Line is how many lines were read.
func (r *Reader) Line() int64 { return r.line }

// Next is the next number, or what is bad about the line that should hold it; io.EOF at the end. Empty lines, the mark at the beginning of a
// UTF-8 file, the line by which spreadsheets name their comma ("sep=;") and a line of headings are passed over.
func (r *Reader) Next() (number phone.Number, bad *Bad, err error) {
	for {
		text, whole, err := r.read()
		if err != nil {
			return "", nil, err
		}
		if r.line == 1 {
			r.wide = strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff")
			text = strings.TrimPrefix(text, "\ufeff")
		}
		switch {
		case r.wide:
			return "", r.bad(text, "the file is UTF-16: save it as CSV in UTF-8"), nil
		case !whole:
			return "", r.bad(text, "the line is longer than 8192 bytes"), nil
		case strings.TrimSpace(text) == "", !r.begun && r.heading(text):
			continue
		}
		fields := r.fields(text)
		if r.column >= len(fields) {
			return "", r.bad(text, "the line has no column with a number"), nil
		}
		value := strings.TrimSpace(fields[r.column])
		number, ok := phone.Parse(bare(value))
		if !ok {
			return "", r.bad(value, "not E.164: a plus and 7 to 15 digits, such as +14155550123"), nil
		}
		return number, nil, nil
	}
}

// bare leaves out what people put into numbers to read them by.
func bare(value string) string {
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

// read is the next line without its end; whole is false for one that is too long, of which only the beginning comes back.
func (r *Reader) read() (text string, whole bool, err error) {
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

// heading says whether a line at the list's beginning holds no number by intent; it settles what parts the columns and which holds the numbers.
func (r *Reader) heading(text string) bool {
	if parts, ok := strings.CutPrefix(text, "sep="); ok && len(parts) == 1 && strings.ContainsAny(parts, ",;\t") {
		return true // the headings show which it is
	}
	r.begun = true
	for _, r.comma = range []rune{',', ';', '\t'} {
		for i, name := range r.fields(text) {
			if slices.Contains(headings(), strings.ToLower(strings.TrimSpace(name))) {
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

func (r *Reader) fields(text string) []string {
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

// bad shows the beginning of a value as text that can be stored and read.
func (r *Reader) bad(value, reason string) *Bad {
	value = strings.Map(func(char rune) rune {
		if char < ' ' || char == utf8.RuneError {
			return '?'
		}
		return char
	}, strings.ToValidUTF8(value, "?"))
	if utf8.RuneCountInString(value) > mostValue {
		value = string([]rune(value)[:mostValue]) + "…"
	}
	return &Bad{Line: r.line, Value: value, Reason: reason}
}
