package proxy

import (
	"net/http"
	"net/url"
	"strings"
)

// These are the names of the services that own routes.
const (
	Gateway  = "gateway"
	Calls    = "calls"
	Contacts = "contacts-compliance"
	Dialer   = "dialer"
	Wallet   = "billing-wallet"
	Webhooks = "webhook-dispatcher"
)

// Owners returns the services that the gateway forwards requests to.
func Owners() []string { return []string{Wallet, Calls, Contacts, Dialer, Webhooks} }

// Route is a path template and the service that owns the matching paths.
type Route struct {
	// Template contains {name} for one segment of the path. A * at the end of Template matches one
	// or more segments.
	Template string
	Owner    string
	// Methods are the methods of the route, without HEAD. If Methods is empty, the service checks
	// the method.
	Methods []string
	// ReadAccess is true if read access is enough for every method, because no method changes
	// anything.
	ReadAccess bool
	// WriteAccess is true if every method needs write access.
	WriteAccess bool
	// Stream is true if the response has no end.
	Stream bool
}

// Match is the result of a look-up: a route, and the path that matches it.
type Match struct {
	Route
	// Path is the path that is sent to the service. Every segment was decoded and encoded again.
	Path *url.URL
	// Values maps the names in the template to the decoded segments of the path.
	Values map[string]string
}

// Allows reports whether the route accepts the method. A route with GET also accepts HEAD.
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

// Allow returns the methods for the Allow header.
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

// Table is a list of routes. If several routes match, the first one is used.
type Table []Route

// Find returns the route of a path. It reads the escaped path that the client sent, so that the
// service cannot interpret the path as another route. A path with an empty segment, a dot segment
// (encoded or not) or an escaped literal segment matches no route.
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
			return Match{Route: r, Path: encodePath(decoded), Values: values}, true
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
		if sent[i] != part { // a literal segment must not be escaped
			return nil, false
		}
	}
	return values, true
}

// encodePath encodes the segments. The same segments always give the same path.
func encodePath(segments []string) *url.URL {
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

// InWebhooks reports whether a path is under /v1/webhook-subscriptions, /v1/webhook-deliveries or
// /v1/events. The path need not match a route, because the plan is checked before the route.
func InWebhooks(path *url.URL) bool {
	for _, base := range []string{webhookSubscriptions, webhookDeliveries, events} {
		if rest, ok := strings.CutPrefix(path.Path, base); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}
