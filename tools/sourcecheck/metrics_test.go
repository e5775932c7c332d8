package sourcecheck

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	listedMetric = regexp.MustCompile("(?m)^\\| `(ringfence_[a-z0-9_]+)`")
	metricName   = regexp.MustCompile(`^ringfence_[a-z0-9_]+$`)
)

// TestMetricsPage_ListsTheMetricsOfTheCode compares docs/reference/metrics.md with the string
// literals of libs and services. A literal such as "ringfence_postgres_" is the prefix of the other
// names in its file. `make observe` compares types and help texts.
func TestMetricsPage_ListsTheMetricsOfTheCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(repository + "/docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, found := range listedMetric.FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, found[1])
	}
	sources, err := parseFiles(os.DirFS(repository))
	if err != nil {
		t.Fatal(err)
	}
	inCode := map[string]bool{}
	for _, s := range sources {
		if s.test() || !strings.HasPrefix(s.path, "libs/") && !strings.HasPrefix(s.path, "services/") {
			continue
		}
		literals := stringLiterals(s.file)
		for _, name := range literals {
			switch {
			case !metricName.MatchString(name):
			case !strings.HasSuffix(name, "_"):
				inCode[name] = true
				if !slices.Contains(listed, name) {
					t.Errorf("%s: docs/reference/metrics.md does not list %s", s.path, name)
				}
			default:
				for _, rest := range literals {
					inCode[name+rest] = true
				}
			}
		}
	}
	for _, name := range listed {
		if !inCode[name] {
			t.Errorf("docs/reference/metrics.md lists %s, which is not in the code", name)
		}
	}
	if len(listed) < 50 {
		t.Errorf("listed metrics = %d, want at least 50", len(listed))
	}
}

func stringLiterals(file *ast.File) (found []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				found = append(found, text)
			}
		}
		return true
	})
	return found
}
