package house

import (
	"go/ast"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// modules: services → libs, proto; deploy → libs, proto; libs and proto → nothing of ours; no service → another service.
func modules(s source, say func(int, string, ...any)) {
	parts := strings.Split(s.path, "/")
	own := parts[0]
	if own == "services" && len(parts) > 1 {
		own = "services/" + parts[1]
	}
	may := map[string][]string{"libs": {"libs"}, "proto": {"proto"}}[own]
	if may == nil {
		may = []string{own, "libs", "proto"}
	}
	for name, line := range s.imports() {
		ours, is := strings.CutPrefix(name, module)
		if is && !slices.ContainsFunc(may, func(m string) bool { return ours == m || strings.HasPrefix(ours, m+"/") }) {
			say(line, "%s may not import %s: services → libs, proto; libs → nothing of ours; no service → another service", own, name)
		}
	}
}

// room is which part of a service's skeleton a path or an import lies in; "" outside of services.
func room(where string) (service, kind, name string) {
	parts := strings.Split(strings.TrimPrefix(where, module), "/")
	if len(parts) < 3 || parts[0] != "services" {
		return "", "", ""
	}
	service = parts[1]
	if parts[2] != "internal" || len(parts) < 4 {
		return service, parts[2], parts[2] // cmd, migrations
	}
	if strings.HasSuffix(where, ".go") {
		parts = parts[:len(parts)-1]
	}
	if len(parts) < 4 {
		return service, "", ""
	}
	name = parts[3]
	if below := strings.Join(parts[3:], "/"); slices.Contains(acting, below) {
		return service, "acting", below
	} else if slices.ContainsFunc(parts[4:], func(part string) bool { return strings.HasSuffix(part, "test") }) {
		return service, "test", below
	}
	switch {
	case name == "store" || name == "httpapi" || name == "consumer":
		return service, name, name
	case strings.HasSuffix(name, "test"):
		return service, "test", name
	case strings.HasSuffix(name, "ing") || slices.Contains(acting, name):
		return service, "acting", name
	}
	return service, "noun", name
}

// acting rooms whose name does not end in -ing: the architecture calls them so. One below a noun stands with its whole path: it may use the noun, never the other way round.
var acting = []string{"intake", "carrier", "bridge", "signal", "media", "agent/socket", "agent/realtime", "agent/mediaws"}

// rooms: a noun knows, a store keeps, an -ing acts, httpapi and consumer only listen. Each kind lists what it may use of its own service.
func rooms(s source, say func(int, string, ...any)) {
	service, kind, name := room(s.path)
	uses, judged := map[string][]string{
		"noun":       {"noun"},
		"store":      {"noun"},
		"acting":     {"noun", "store", "acting"},
		"httpapi":    {"noun", "store", "acting"},
		"consumer":   {"noun", "store", "acting"},
		"migrations": {},
	}[kind]
	if !judged || s.test() {
		return
	}
	for imported, line := range s.imports() {
		otherService, other, otherName := room(imported)
		if !strings.HasPrefix(imported, module) || otherService != service || otherName == name {
			continue
		}
		if !slices.Contains(uses, other) {
			say(line, "%s (a %s) may not use %s (a %s) of its service: a noun knows, a store keeps, an -ing acts, httpapi and consumer only listen", name, kind, otherName, other)
		}
		if otherName == "carrier" && (kind == "httpapi" || kind == "consumer") {
			say(line, "%s only listens: carriers are spoken to by an -ing", name)
		}
	}
}

// beyond is what a noun may not import: everything that reaches out of the process.
var beyond = []string{
	"os", "os/exec", "os/signal", "net", "net/rpc", "database/sql", "syscall", "io/ioutil",
	"github.com/jackc/pgx", "github.com/twmb/franz-go", "connectrpc.com/connect",
	module + "libs/pg", module + "libs/inbox", module + "libs/httpserver", module + "libs/service", module + "libs/telemetry",
}

// ticking is what of package time looks at a clock.
var ticking = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// wordsOfHTTP are the parts of net/http that are vocabulary and reach nothing: a status in a rule is no IO.
var wordsOfHTTP = regexp.MustCompile(`^(Status[A-Z]\w*|Method[A-Z]\w*|Header|CanonicalHeaderKey|ParseTime|TimeFormat)$`)

// nouns: types, state machine, rules. No IO, no SQL, no clock: time is an argument.
func nouns(s source, say func(int, string, ...any)) {
	_, kind, name := room(s.path)
	if kind != "noun" || s.test() {
		return
	}
	for imported, line := range s.imports() {
		if reaches(imported, beyond) {
			say(line, "%s is a noun: no IO, so it may not import %s", name, imported)
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		pick, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, _ := pick.X.(*ast.Ident)
		switch {
		case of == nil:
		case of.Name == "time" && slices.Contains(ticking, pick.Sel.Name):
			say(s.line(n.Pos()), "%s is a noun: no clock, so no time.%s; time is an argument", name, pick.Sel.Name)
		case of.Name == "http" && !wordsOfHTTP.MatchString(pick.Sel.Name) && s.imports()["net/http"] > 0:
			say(s.line(n.Pos()), "%s is a noun: no IO, so no http.%s", name, pick.Sel.Name)
		}
		return true
	})
}

// reaches says whether an import is one of the packages or, for those outside the standard library, below one.
func reaches(imported string, list []string) bool {
	return slices.ContainsFunc(list, func(name string) bool {
		return imported == name || (strings.Contains(name, ".") && strings.HasPrefix(imported, name+"/"))
	})
}

// listeners: httpapi decodes, asks and encodes; it holds no database or Kafka. A consumer serves no HTTP.
func listeners(s source, say func(int, string, ...any)) {
	_, kind, _ := room(s.path)
	not := map[string][]string{
		"httpapi":  {"database/sql", "github.com/jackc/pgx", "github.com/twmb/franz-go", module + "libs/inbox"},
		"consumer": {"net/http", "database/sql", "connectrpc.com/connect", module + "libs/httpserver"},
		"store":    {"net/http", "os/exec", "github.com/twmb/franz-go", "connectrpc.com/connect", module + "libs/httpserver", module + "libs/inbox"},
	}[kind]
	if s.test() {
		return
	}
	for imported, line := range s.imports() {
		if reaches(imported, not) {
			say(line, "%s may not import %s", kind, imported)
		}
	}
}

var statement = regexp.MustCompile(`^\s*(SELECT\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+(AS\s+\S+\s+)?SET\s|DELETE\s+FROM\s|WITH\s+\w+\s+AS\s|LOCK\s+TABLE\s|TRUNCATE\s)`)

// sql: every statement of a service stands in its internal/store (or its migrations).
func sql(s source, say func(int, string, ...any)) {
	service, kind, _ := room(s.path)
	if service == "" || kind == "store" || kind == "test" || s.test() {
		return
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && statement.MatchString(strings.Trim(text.Value, "`\"")) {
			say(s.line(n.Pos()), "SQL stands only in internal/store")
		}
		return true
	})
}

// sizes: function ≤ 80 lines, file ≤ 400 (a test's 450), main.go ≤ 150.
func sizes(s source, say func(int, string, ...any)) {
	const longestFunc, longestFile, longestTest, longestMain = 80, 400, 450, 150
	most := longestFile
	switch {
	case s.test():
		most = longestTest
	case strings.HasPrefix(s.path, "services/") && strings.HasSuffix(s.path, "/main.go"):
		most = longestMain
	}
	if n := s.lines(); n > most {
		say(1, "%d lines; at most %d: split by meaning", n, most)
	}
	for _, decl := range s.file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && !s.test() {
			if n := s.line(f.End()) - s.line(f.Pos()) + 1; n > longestFunc {
				say(s.line(f.Pos()), "func %s has %d lines; at most %d", f.Name.Name, n, longestFunc)
			}
		}
	}
}

// drawers are names that say nothing.
var drawers = []string{"util", "utils", "common", "helper", "helpers", "base", "manager", "handler", "handlers", "models", "types", "misc"}

// words: no drawer packages, no init.
func words(s source, say func(int, string, ...any)) {
	if slices.Contains(drawers, s.file.Name.Name) {
		say(s.line(s.file.Name.Pos()), "package %s is a drawer: name it after what it owns", s.file.Name.Name)
	}
	for _, decl := range s.file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			say(s.line(f.Pos()), "no init: wire it in main")
		}
	}
}

// variables: --help has a sentence for everything that the environment can say.
func variables(s source, say func(int, string, ...any)) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil || s.test() {
			return true
		}
		tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
		if name, _, _ := strings.Cut(tag.Get("env"), ","); name != "" && tag.Get("help") == "" {
			say(s.line(field.Pos()), "%s has no help: add `help:\"what it means, with its unit\"`", name)
		}
		return true
	})
}
