package proxy

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func parse(t *testing.T, path string) *url.URL {
	t.Helper()
	u, err := url.ParseRequestURI(path)
	if err != nil {
		t.Fatalf("parse %q: %v", path, err)
	}
	return u
}

func TestFind_RejectsAmbiguousPaths(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, path, template, forwarded string }{
		{"path without parameters", "/v1/calls", "/v1/calls", "/v1/calls"},
		{"path with a parameter", "/v1/calls/7", "/v1/calls/{id}", "/v1/calls/7"},
		{"parameter with an encoded plus sign", "/v1/opt-outs/%2B1555", "/v1/opt-outs/{phone_e164}", "/v1/opt-outs/+1555"},
		{"parameter with an encoded slash stays one segment", "/v1/calls/a%2Fb", "/v1/calls/{id}", "/v1/calls/a%2Fb"},
		{"parameter with an encoded question mark", "/v1/calls/a%3Fb", "/v1/calls/{id}", "/v1/calls/a%3Fb"},
		{"parameter with an encoded space", "/v1/calls/a%20b", "/v1/calls/{id}", "/v1/calls/a%20b"},
		{"more segments than any route", "/v1/calls/7/8", "", ""},
		{"the root", "/", "", ""},
		{"a double slash", "/v1//calls", "", ""},
		{"a slash at the end", "/v1/calls/", "", ""},
		{"a dot segment", "/v1/./calls", "", ""},
		{"an encoded dot segment", "/v1/calls/%2e%2e", "", ""},
		{"percent-encoded letter outside of a parameter", "/v1/c%61lls", "", ""},
		{"upper-case letter", "/v1/Calls", "", ""},
	} {
		match, ok := Public().Find(parse(t, row.path))
		if ok != (row.template != "") {
			t.Errorf("%s: ok = %v, want %v", row.name, ok, row.template != "")
			continue
		}
		if match.Template != row.template {
			t.Errorf("%s: match.Template = %v, want %v", row.name, match.Template, row.template)
			continue
		}
		if ok && match.Path.EscapedPath() != row.forwarded {
			t.Errorf("%s: forwarded as %s, want %s", row.name, match.Path.EscapedPath(), row.forwarded)
		}
	}
	for path, template := range map[string]string{
		"/admin/v1/workspaces/7/agents":                 "/admin/v1/workspaces/{id}/agents",
		"/admin/v1/workspaces/7/agents/8":               "/admin/v1/workspaces/{id}/agents/{agent_id}",
		"/admin/v1/workspaces/7/agents/8/9/10":          "/admin/v1/workspaces/{id}/agents/*",
		"/admin/v1/workspaces/7/contacts/%2B15/consent": "/admin/v1/workspaces/{id}/contacts/{phone_e164}/consent",
		"/admin/v1/workspaces/7/calls":                  "/admin/v1/workspaces/{id}/calls",
		"/admin/v1/workspaces/7/call-requests/8":        "/admin/v1/workspaces/{id}/call-requests/*",
		"/admin/v1/workspaces/7/attempts":               "/admin/v1/workspaces/{id}/attempts",
		"/admin/v1/workspaces/7/api-keys":               "",
		"/admin/v1/dialer":                              "/admin/v1/dialer",
		"/admin/v1/trunks":                              "/admin/v1/trunks",
		"/admin/v1/trunks/7":                            "/admin/v1/trunks/{trunk_id}",
		"/admin/v1/workspaces/7":                        "",
	} {
		if match, _ := Admin().Find(parse(t, path)); match.Template != template {
			t.Errorf("%s = %q, want %q", path, match.Template, template)
		}
	}
}

// The forwarded path must match the same route again, in its escaped form and in its decoded form.
// Otherwise a request could pass the checks of one route and reach another route in the service.
func TestFind_ForwardedPathMatchesTheRouteOfTheRequest(t *testing.T) {
	t.Parallel()
	segment := rapid.SampledFrom([]string{"v1", "calls", "webhook-subscriptions", "opt-outs", "..", ".", "", "%2e%2e", "%2F", "..%2F..", "a%2Fb", "%00", "+1", "%2B1", "a;b", "%5C", "wallet", "%25", "%252e"})
	rapid.Check(t, func(r *rapid.T) {
		path := "/" + strings.Join(rapid.SliceOfN(segment, 1, 6).Draw(r, "segments"), "/")
		sent, err := url.ParseRequestURI(path)
		if err != nil {
			r.Skip()
		}
		first, ok := Public().Find(sent)
		if !ok {
			return
		}
		again, err := url.ParseRequestURI(first.Path.EscapedPath())
		if err != nil {
			r.Fatalf("%s is forwarded as %q: %v", path, first.Path.EscapedPath(), err)
		}
		second, ok := Public().Find(again)
		if !ok {
			r.Fatalf("%s: ok = false, want true", path)
		}
		if second.Template != first.Template {
			r.Fatalf("%s: second.Template = %v, want %v", path, second.Template, first.Template)
		}
		if second.Path.EscapedPath() != first.Path.EscapedPath() {
			r.Fatalf("%s: second.Path.EscapedPath() = %v, want %v", path, second.Path.EscapedPath(), first.Path.EscapedPath())
		}
		for _, part := range strings.Split(first.Path.EscapedPath(), "/")[1:] {
			if part == "" {
				r.Fatalf("part is empty")
			}
			if part == "." {
				r.Fatalf("part = %q, want another value", part)
			}
			if part == ".." {
				r.Fatalf("part = %q, want another value", part)
			}
		}
	})
}

func TestRoute_GETRouteAllowsHEAD(t *testing.T) {
	t.Parallel()
	r := Route{Methods: []string{"GET", "POST"}}
	if !r.Allows("HEAD") {
		t.Errorf("r.Allows(\"HEAD\") = false, want true")
	}
	if !r.Allows("POST") {
		t.Errorf("r.Allows(\"POST\") = false, want true")
	}
	if r.Allows("DELETE") {
		t.Errorf("r.Allows(\"DELETE\") = true, want false")
	}
	if r.Allows("OPTIONS") {
		t.Errorf("r.Allows(\"OPTIONS\") = true, want false")
	}
	if want := []string{"GET", "HEAD", "POST"}; !slices.Equal(r.Allow(), want) {
		t.Errorf("Allow = %v, want %v", r.Allow(), want)
	}
}

func TestWebhookRoutes_AreRecognizedByWholePathSegments(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/v1/webhook-subscriptions": true, "/v1/webhook-subscriptions/x/y/z": true, "/v1/webhook-subscriptionsx": false,
		"/v1/events": true, "/v1/eventsx": false, "/v1/calls": false,
	} {
		if got := InWebhooks(parse(t, path)); got != want {
			t.Errorf("%s = %v, want %v", path, got, want)
		}
	}
}
