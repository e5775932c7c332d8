// Package route owns which paths exist, who answers them and by which methods: the gateway's map of question
// 1. It reads the path as it was sent, so that nothing hidden in it can lead to another route than the one judged.

package proxy

import (
	"net/http"
	"net/url"
	"strings"
)

// The owners of routes: the services' names.
const (
	Gateway  = "gateway"
	Calls    = "calls"
	Contacts = "contacts-compliance"
	Dialer   = "dialer"
	Wallet   = "billing-wallet"
	Webhooks = "webhook-dispatcher"
)

// Route is one template and its owner.
type Route struct {
	// Template has {name} for one segment and, at its end, * for one or more.
	Template string
	Owner    string
	// Methods that it knows, HEAD left out; empty: the owner judges.
	Methods []string
}

// Match is a path that names a route.
type Match struct {
	Route
	// Path is the path to ask the owner for, every segment decoded and encoded again.
	Path *url.URL
	// Values are the decoded segments under the template's names.
	Values map[string]string
}

// Allows says whether the route knows the method; HEAD is as good as GET.
func (r Route) Allows(method string) bool {
	if len(r.Methods) == 0 {
		return true
	}
	for _, known := range r.Methods {
		if known == method || (known == http.MethodGet && method == http.MethodHead) {
			return true
		}
	}
	return false
}

// Allow is the Allow header's list.
func (r Route) Allow() []string {
	var methods []string
	for _, known := range r.Methods {
		methods = append(methods, known)
		if known == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	return methods
}

// Table is a list of routes; the first that matches counts.
type Table []Route

// Find is the route of a path; ok is false when there is none. A path with an empty segment, a dot segment (encoded or not) or a
// literal segment written with escapes names no route.
func (t Table) Find(path *url.URL) (Match, bool) {
	sent := strings.Split(strings.TrimPrefix(path.EscapedPath(), "/"), "/")
	decoded := make([]string, len(sent))
	for i, segment := range sent {
		text, err := url.PathUnescape(segment)
		if err != nil || text == "" || text == "." || text == ".." {
			return Match{}, false
		}
		decoded[i] = text
	}
	for _, r := range t {
		if values, ok := r.match(sent, decoded); ok {
			return Match{Route: r, Path: rebuilt(decoded), Values: values}, true
		}
	}
	return Match{}, false
}

func (r Route) match(sent, decoded []string) (map[string]string, bool) {
	template := strings.Split(strings.TrimPrefix(r.Template, "/"), "/")
	if template[len(template)-1] == "*" {
		if len(sent) < len(template) {
			return nil, false
		}
		template = template[:len(template)-1]
	} else if len(sent) != len(template) {
		return nil, false
	}
	values := map[string]string{}
	for i, part := range template {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			values[strings.TrimSuffix(name, "}")] = decoded[i]
			continue
		}
		if sent[i] != part { // as sent: an escaped letter is another path
			return nil, false
		}
	}
	return values, true
}

// rebuilt writes the segments in one way only, whatever way they came in.
func rebuilt(segments []string) *url.URL {
	escaped := make([]string, len(segments))
	for i, segment := range segments {
		escaped[i] = url.PathEscape(segment)
	}
	path := &url.URL{Path: "/" + strings.Join(segments, "/"), RawPath: "/" + strings.Join(escaped, "/")}
	if path.RawPath == (&url.URL{Path: path.Path}).EscapedPath() {
		path.RawPath = ""
	}
	return path
}

// InWebhooks says whether a path lies under /v1/webhook-subscriptions, be it a route or not: the plan is judged before the
// route (contract.md §1).
func InWebhooks(path *url.URL) bool {
	rest, ok := strings.CutPrefix(path.Path, webhookSubscriptions)
	return ok && (rest == "" || rest[0] == '/')
}
