package operator

import (
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable returns the text on one line. It replaces escape sequences, 8-bit controls and
// bidirectional controls, because text of customers can contain them.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case isControl(r):
			return utf8.RuneError
		}
		return r
	}, text)
}

// Escaped replaces the same characters as Printable, but by their JSON escape sequences \u….
func Escaped(value []byte) string {
	var text strings.Builder
	for _, r := range string(value) { // an invalid UTF-8 byte becomes U+FFFD
		if r == '\n' || !isControl(r) {
			text.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			const digits = "0123456789abcdef"
			text.WriteString(`\u`)
			for shift := 12; shift >= 0; shift -= 4 {
				text.WriteByte(digits[unit>>shift&0xf])
			}
		}
	}
	return text.String()
}

// isControl reports whether a character controls the terminal or the text around the character. The
// zero-width joiner and the zero-width non-joiner are permitted: scripts and emoji need them, and
// they are harmless.
func isControl(r rune) bool {
	const joinWithout, join = '\u200c', '\u200d'
	return r != joinWithout && r != join && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// displayWidth returns the width of a text in terminal cells: two for most East Asian characters
// and emoji, zero for combining marks.
func displayWidth(text string) (n int) {
	for _, r := range text {
		switch {
		case r == '\u200d' || r == '\u200c' || unicode.In(r, unicode.Mn, unicode.Me):
		case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) || r >= 0x3000 && r <= 0x303e || r >= 0xff01 && r <= 0xff60 || r >= 0x1f300 && r <= 0x1faff:
			n += 2
		default:
			n++
		}
	}
	return n
}
