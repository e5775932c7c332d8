package httpserver

import "strings"

// CSVText returns text for a CSV cell that no spreadsheet runs as a formula. A cell that begins
// with a character such as "=" is a formula, so CSVText puts an apostrophe before it. It does the
// same after a semicolon, a tab or a line break, because spreadsheets can use these characters as
// separators.
func CSVText(text string) string {
	const formula, separators = "=+-@\t\r\n＝＋－＠", ";\t\r\n"
	if !strings.ContainsAny(text, formula) {
		return text
	}
	var safe strings.Builder
	for text != "" {
		if strings.IndexAny(strings.TrimLeft(text, `" `), formula) == 0 {
			safe.WriteByte('\'')
		}
		end := strings.IndexAny(text, separators)
		if end < 0 {
			safe.WriteString(text)
			break
		}
		safe.WriteString(text[:end+1])
		text = text[end+1:]
	}
	return safe.String()
}
