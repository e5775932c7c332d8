package house

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// TestHouse_EveryRuleHolds is the gate: the tree as it stands breaks no rule.
func TestHouse_EveryRuleHolds(t *testing.T) {
	breaches, err := Check(os.DirFS("../../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, breach := range breaches {
		t.Error(breach)
	}
}

// goFile is a file with the imports and body given.
func goFile(pkg, body string, imports ...string) string {
	text := "package " + pkg + "\n\n"
	for _, name := range imports {
		text += fmt.Sprintf("import _ %q\n", name)
	}
	return text + body + "\n"
}

func TestCheck_ReportsEachBreach(t *testing.T) {
	const calls = "ringfence.dev/services/calls/internal/"
	clock := "import \"time\"\n\nvar _ = time.Now\n"
	tests := []struct {
		name, path, text, want string
	}{
		{"a service imports another service", "services/calls/internal/store/a.go", goFile("store", "", "ringfence.dev/services/dialer/migrations"), "may not import ringfence.dev/services/dialer"},
		{"a service imports deploy", "services/calls/internal/store/a.go", goFile("store", "", "ringfence.dev/deploy/e2e"), "may not import ringfence.dev/deploy"},
		{"a test of a service imports another service", "services/calls/internal/store/a_test.go", goFile("store", "", "ringfence.dev/services/dialer/migrations"), "may not import"},
		{"libs import a service", "libs/money/a.go", goFile("money", "", "ringfence.dev/services/calls/migrations"), "libs may not import"},
		{"libs import proto", "libs/money/a.go", goFile("money", "", "ringfence.dev/proto/eventv1"), "libs may not import"},
		{"proto imports libs", "proto/a.go", goFile("proto", "", "ringfence.dev/libs/money"), "proto may not import"},
		{"deploy imports a service", "deploy/bench/a.go", goFile("main", "", "ringfence.dev/services/calls/migrations"), "deploy may not import"},
		{"a noun uses the store", "services/calls/internal/call/a.go", goFile("call", "", calls+"store"), "call (a noun) may not use store"},
		{"a noun uses an -ing", "services/calls/internal/call/a.go", goFile("call", "", calls+"completing"), "may not use completing"},
		{"a noun reaches the database", "services/calls/internal/call/a.go", goFile("call", "", "github.com/jackc/pgx/v5"), "may not import github.com/jackc/pgx/v5"},
		{"a noun reaches the network", "services/calls/internal/call/a.go", goFile("call", "import \"net/http\"\n\nvar _ http.Client"), "no http.Client"},
		{"a noun reads files", "services/calls/internal/call/a.go", goFile("call", "", "os"), "may not import os"},
		{"a noun looks at the clock", "services/calls/internal/call/a.go", goFile("call", clock), "no time.Now"},
		{"a store uses httpapi", "services/calls/internal/store/a.go", goFile("store", "", calls+"httpapi"), "store (a store) may not use httpapi"},
		{"a store uses an -ing", "services/calls/internal/store/a.go", goFile("store", "", calls+"completing"), "may not use completing"},
		{"a store asks a peer", "services/calls/internal/store/a.go", goFile("store", "", "net/http"), "store may not import net/http"},
		{"an -ing uses httpapi", "services/calls/internal/completing/a.go", goFile("completing", "", calls+"httpapi"), "may not use httpapi"},
		{"a consumer uses httpapi", "services/calls/internal/consumer/a.go", goFile("consumer", "", calls+"httpapi"), "may not use httpapi"},
		{"a consumer serves HTTP", "services/calls/internal/consumer/a.go", goFile("consumer", "", "net/http"), "consumer may not import net/http"},
		{"a consumer speaks to a carrier", "services/dialer/internal/consumer/a.go", goFile("consumer", "", "ringfence.dev/services/dialer/internal/carrier/sim"), "only listens"},
		{"httpapi speaks to a carrier", "services/dialer/internal/httpapi/a.go", goFile("httpapi", "", "ringfence.dev/services/dialer/internal/carrier"), "only listens"},
		{"httpapi uses the consumer", "services/calls/internal/httpapi/a.go", goFile("httpapi", "", calls+"consumer"), "may not use consumer"},
		{"httpapi holds the database", "services/calls/internal/httpapi/a.go", goFile("httpapi", "", "github.com/jackc/pgx/v5/pgxpool"), "httpapi may not import"},
		{"a noun uses what acts below it", "services/dialer/internal/agent/a.go", goFile("agent", "", "ringfence.dev/services/dialer/internal/agent/realtime"), "agent (a noun) may not use agent/realtime"},
		{"SQL outside the store", "services/calls/internal/completing/a.go", goFile("completing", "const due = `\n\tSELECT id FROM call`"), "SQL stands only in internal/store"},
		{"an UPDATE outside the store", "services/calls/cmd/calls/a.go", goFile("main", `const end = "UPDATE call SET status = 'x'"`), "SQL stands only"},
		{"a long function", "libs/money/a.go", goFile("money", "func f() {"+strings.Repeat("\n", 80)+"}"), "func f has 81 lines"},
		{"a long file", "libs/money/a.go", goFile("money", strings.Repeat("//\n", 400)), "at most 400"},
		{"a long main", "services/calls/cmd/calls/main.go", goFile("main", strings.Repeat("//\n", 150)), "at most 150"},
		{"a drawer", "libs/util/util.go", goFile("util", ""), "package util is a drawer"},
		{"an init", "libs/money/a.go", goFile("money", "func init() {}"), "no init"},
		{"a variable without help", "services/calls/cmd/calls/a.go", goFile("main", "type C struct {\n\tWait int `env:\"WAIT\" envDefault:\"1\"`\n}"), "WAIT has no help"},
		{"a stray file at the top", "NOTES.txt", "", "the top level holds only"},
		{"a service without its skeleton", "services/calls/go.mod", "module ringfence.dev/services/calls\n", "every service has README.md"},
		{"a README that leaves something out", "services/calls/go.mod", "module ringfence.dev/services/calls\n", "it has no heading \"Does not own\""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			breaches, err := Check(fstest.MapFS{test.path: {Data: []byte(test.text)}})
			if err != nil {
				t.Fatal(err)
			}
			for _, breach := range breaches {
				if strings.HasPrefix(breach, strings.TrimSuffix(test.path, "/go.mod")) && strings.Contains(breach, test.want) {
					return
				}
			}
			t.Errorf("breaches %q, want one that says %q", breaches, test.want)
		})
	}
}

func TestCheck_TooManyFilesInAPackage(t *testing.T) {
	tree := fstest.MapFS{}
	for i := range 9 {
		tree[fmt.Sprintf("libs/money/f%d.go", i)] = &fstest.MapFile{Data: []byte("package money\n")}
	}
	if breaches, err := Check(tree); err != nil || len(breaches) != 1 {
		t.Errorf("nine files: %v %v, want one breach", breaches, err)
	}
	delete(tree, "libs/money/f8.go")
	tree["libs/money/f8_test.go"] = &fstest.MapFile{Data: []byte("package money\n")}
	tree["libs/money/f9.go"] = &fstest.MapFile{Data: []byte("// Code generated by a tool. DO NOT EDIT.\n\npackage money\n")}
	if breaches, err := Check(tree); err != nil || len(breaches) != 0 {
		t.Errorf("eight files, a test and a generated one: %v %v, want none", breaches, err)
	}
}

func TestCheck_AllowsWhatTheArchitectureAllows(t *testing.T) {
	const calls = "ringfence.dev/services/calls/internal/"
	tree := fstest.MapFS{}
	for path, text := range map[string]string{
		"services/calls/internal/call/a.go":                         goFile("call", "import \"time\"\n\nfunc Age(now, then time.Time) time.Duration { return now.Sub(then) }", "ringfence.dev/libs/money", "ringfence.dev/proto/eventv1", calls+"agent"),
		"services/calls/internal/agent/a.go":                        goFile("agent", "import \"net/http\"\n\nconst refused = http.StatusConflict"),
		"services/calls/internal/store/a.go":                        goFile("store", "const q = `SELECT id FROM call`", "github.com/jackc/pgx/v5", "ringfence.dev/libs/outbox", calls+"call"),
		"services/calls/internal/httpapi/a.go":                      goFile("httpapi", `const message = "Select one of these."`, "net/http", calls+"store", calls+"intake", calls+"call"),
		"services/calls/internal/consumer/a.go":                     goFile("consumer", "", "github.com/jackc/pgx/v5", "ringfence.dev/libs/inbox", calls+"store"),
		"services/calls/internal/completing/a.go":                   goFile("completing", "import \"time\"\n\nvar _ = time.Now", calls+"store"),
		"services/calls/internal/store/a_test.go":                   goFile("store", "", "os", "ringfence.dev/services/calls/migrations"),
		"services/calls/cmd/calls/main.go":                          goFile("main", "", calls+"httpapi", calls+"consumer", "os"),
		"services/dialer/internal/agent/realtime/a.go":              goFile("realtime", "import \"time\"\n\nvar _ = time.Now", "net", "ringfence.dev/services/dialer/internal/agent"),
		"services/dialer/internal/agent/realtime/realtimetest/a.go": goFile("realtimetest", "import \"time\"\n\nvar _ = time.Now", "net"),
		"deploy/e2e/a.go":                                           goFile("e2e", "", "ringfence.dev/deploy/e2e/rig", "ringfence.dev/libs/money"),
	} {
		tree[path] = &fstest.MapFile{Data: []byte(text)}
	}
	if breaches, err := Check(tree); err != nil || len(breaches) != 0 {
		t.Errorf("breaches %q %v, want none", breaches, err)
	}
}
