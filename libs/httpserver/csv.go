package httpserver

import "strings"

// CSVText returns the text of a CSV cell without formulas. A spreadsheet runs a cell that begins
// with one of some characters, so the text gets an apostrophe there. Spreadsheets whose separator
// is another one than the comma start a new cell after a semicolon, a tab or a line break.
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
