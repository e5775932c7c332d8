package proxy

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzFind checks the path that Find returns for the service. Find must match that path to the same
// route again, and the path must stay below the prefix of the route.
func FuzzFind(f *testing.F) {
	for _, path := range []string{
		"/v1/calls", "/v1/calls/7", "/v1/opt-outs/%2B1555", "/v1/opt-outs/+1555", "/v1/opt-outs/ 1555", "/v1/calls/a%2Fb", "/v1//calls", "//v1/calls", "/v1/calls/", "/v1/./calls",
		"/v1/calls/%2e%2e", "/v1/calls/..%2F..%2Fwallet", "/v1/c%61lls", "/v1/calls/%00", "/v1/calls/%ff", "/v1/calls/a;b", "/v1/calls/a%3Fb", "/v1/calls/a%23b", "/v1/calls/%252e",
		"/admin/v1/workspaces/7/agents/8/9", "/admin/v1/workspaces/7/contacts/%2B1/consent", "/admin/v1/workspaces/%2e%2e/agents", "*", "/", "/v1/calls/\\..\\x", "/v1/calls/٣",
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		sent, err := url.ParseRequestURI(path)
		if err != nil {
			t.Skip("net/http refuses it")
		}
		for prefix, table := range map[string]Table{"/v1/": Public(), "/admin/v1/workspaces/": Admin()} {
			first, ok := table.Find(sent)
			if !ok {
				continue
			}
			forwarded := first.Path.EscapedPath()
			again, err := url.ParseRequestURI(forwarded)
			if err != nil {
				t.Fatalf("%q is forwarded as %q: %v", path, forwarded, err)
			}
			second, ok := table.Find(again)
			if !ok {
				t.Fatalf("%q: ok = false, want true", path)
			}
			if second.Template != first.Template {
				t.Fatalf("%q: second.Template = %v, want %v", path, second.Template, first.Template)
			}
			if second.Path.EscapedPath() != forwarded {
				t.Fatalf("%q: second.Path.EscapedPath() = %v, want %v", path, second.Path.EscapedPath(), forwarded)
			}
			if !strings.HasPrefix(forwarded, prefix) {
				t.Fatalf("forwarded = %q, want it to begin with %q; path = %q", forwarded, prefix, path)
			}
			if strings.Contains(forwarded, "//") {
				t.Fatalf(`forwarded = %q, want it without "//"; path = %q`, forwarded, path)
			}
			for part := range strings.SplitSeq(forwarded[1:], "/") {
				if part == "" {
					t.Fatalf("part is empty")
				}
				if part == "." {
					t.Fatalf("part = %q, want another value", part)
				}
				if part == ".." {
					t.Fatalf("part = %q, want another value", part)
				}
			}
		}
	})
}
