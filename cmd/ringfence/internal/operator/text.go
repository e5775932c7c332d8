package operator

import (
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable is text that steers no terminal and hides nothing on it, on one line: what others wrote may hold escape sequences, in eight bits too, and
// characters that turn the direction of what follows.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case steers(r):
			return utf8.RuneError
		}
		return r
	}, text)
}

// Escaped is JSON whose text, too, steers no terminal: what Printable replaces is written as \u….
func Escaped(value []byte) string {
	var text strings.Builder
	for _, r := range string(value) { // a byte that is no UTF-8 comes as U+FFFD
		if r == '\n' || !steers(r) {
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

// steers says whether a character does something to what stands around it. The two joiners, which scripts and emoji need, do no harm.
func steers(r rune) bool {
	const joinWithout, join = '\u200c', '\u200d'
	return r != joinWithout && r != join && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// cells is how many a text takes on a terminal: two for most of what East Asia writes and for emoji, none for marks on the letter before.
func cells(text string) (n int) {
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
