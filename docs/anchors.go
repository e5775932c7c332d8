package docs

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
)

// anchors creates the ids of headings as GitHub does, so that a link works on GitHub and on the
// site.
type anchors map[string]int

// Generate implements parser.IDs.
func (a anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(string(heading)))
	times := a[id]
	a[id]++
	if times > 0 {
		id = fmt.Sprintf("%s-%d", id, times)
	}
	return []byte(id)
}

// Put implements parser.IDs. It reserves an id.
func (a anchors) Put(id []byte) { a[string(id)]++ }
