package httpserver

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
)

// maxDepth is the maximum nesting of a body. The resources of the API need much less, and deeper
// nesting would use more stack.
const maxDepth = 32

// checkText rejects text that encoding/json accepts but the API does not: invalid UTF-8, single
// surrogates, NUL characters and deep nesting.
func checkText(body []byte) error {
	if at := invalidUTF8Offset(body); at >= 0 {
		return invalidText(body, at, "bytes that are not UTF-8")
	}
	if at := bytes.IndexByte(body, 0); at >= 0 {
		return invalidText(body, at, "a NUL character")
	}
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			size, refusal := escapeLength(body[i:])
			if refusal != "" {
				return invalidText(body, i, refusal)
			}
			i += size - 1 // an escaped quote does not end the string
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return apierr.Validation(orBody(fieldAt(body, i)), "is nested more than %d levels deep.", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// escapeLength returns the length of the escape sequence at the start of text. refusal is the
// reason why the API refuses the sequence, or empty.
func escapeLength(text []byte) (size int, refusal string) {
	first, ok := codeUnit(text)
	switch {
	case !ok: // an escape such as \n: encoding/json has already rejected malformed sequences
		return 2, ""
	case first == 0:
		return 6, "a NUL character"
	case !utf16.IsSurrogate(first):
		return 6, ""
	}
	second, _ := codeUnit(text[6:])
	if utf16.DecodeRune(first, second) == utf8.RuneError {
		return 6, "half a surrogate pair"
	}
	return 12, ""
}

func codeUnit(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(unit), err == nil
}

func orBody(field string) string {
	if field == "" {
		return "body"
	}
	return field
}

// fieldAt returns the name of the top-level field that contains the offset, or "". The text can be
// invalid JSON, so fieldAt reads only strings and brackets.
func fieldAt(body []byte, offset int) string {
	depth, key := 0, ""
	for i := 0; i < min(offset, len(body)); i++ {
		switch body[i] {
		case '"':
			end := stringEnd(body, i)
			if depth == 1 && colonFollows(body, end) {
				var name string
				raw := body[i:min(end+1, len(body))]
				if key = ""; utf8.Valid(raw) && json.Unmarshal(raw, &name) == nil && len(name) <= 64 {
					key = name
				}
			}
			i = end
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				key = ""
			}
		case ',':
			if depth == 1 {
				key = ""
			}
		}
	}
	return key
}

// stringEnd returns the index of the quote that ends the string. The string begins at start.
func stringEnd(body []byte, start int) int {
	for i := start + 1; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(body)
}

func colonFollows(body []byte, end int) bool {
	if end+1 >= len(body) {
		return false
	}
	rest := bytes.TrimLeft(body[end+1:], " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}
