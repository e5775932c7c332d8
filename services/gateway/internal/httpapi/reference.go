package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"ringfence.dev/libs/httpserver"
)

// referenceCacheControl permits a client to reuse a document for 5 minutes. After that, the ETag
// avoids the download of an unchanged document.
const referenceCacheControl = "public, max-age=300"

// redirectBrowser redirects GET / to a page of the documentation if the client accepts HTML. It
// returns false for every other request.
func redirectBrowser(w http.ResponseWriter, r *http.Request, page string) bool {
	if r.URL.Path != "/" || (r.Method != http.MethodGet && r.Method != http.MethodHead) {
		return false
	}
	w.Header().Add("Vary", "Accept")
	for _, accepted := range listHeader(r, "Accept") {
		kind, _, _ := strings.Cut(accepted, ";")
		if strings.EqualFold(strings.TrimSpace(kind), "text/html") {
			http.Redirect(w, r, page, http.StatusFound)
			return true
		}
	}
	return false
}

// serveDocument handles /openapi.json, /llms.txt, /docs and the paths below /docs. find returns the
// document of a path. serveDocument responds 304 if the client already has the current document.
func serveDocument(w http.ResponseWriter, r *http.Request, find func(path string) (Document, bool)) error {
	// the links of the page are relative to /docs/guides/, so the browser must request the full
	// path of the page
	if strings.TrimSuffix(r.URL.Path, "/") == "/docs/guides" {
		http.Redirect(w, r, "/docs/guides/index.html", http.StatusPermanentRedirect)
		return nil
	}
	document, ok := find(r.URL.Path)
	if !ok {
		return httpserver.NoRoute()
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return httpserver.WrongMethod(w, r.Method, http.MethodGet, http.MethodHead)
	}
	body, tag, zipped := document.Plain, `"`+document.Tag+`"`, acceptsGzip(r)
	if zipped {
		body, tag = document.Zipped, `"`+document.Tag+`-gzip"`
	}
	header := w.Header()
	header.Set("ETag", tag)
	header.Set("Vary", "Accept-Encoding")
	header.Set("Cache-Control", referenceCacheControl)
	header.Set("Content-Security-Policy", Policy)
	header.Set("Referrer-Policy", "no-referrer")
	if hasCurrent(r, tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if zipped {
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Type", document.Kind)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // an error means that the client disconnected
	return nil
}

// acceptsGzip reports whether the client accepts gzip (RFC 9110, 12.5.3).
func acceptsGzip(r *http.Request) bool {
	for _, part := range listHeader(r, "Accept-Encoding") {
		coding, weight, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		quality, weighed := strings.CutPrefix(strings.ToLower(strings.TrimSpace(weight)), "q=")
		return !weighed || strings.Trim(quality, "0.") != ""
	}
	return false
}

// hasCurrent reports whether the client already has the document with this tag (RFC 9110, 13.1.2).
func hasCurrent(r *http.Request, tag string) bool {
	for _, known := range listHeader(r, "If-None-Match") {
		if known == "*" || strings.TrimPrefix(known, "W/") == tag {
			return true
		}
	}
	return false
}

func listHeader(r *http.Request, name string) []string {
	all := strings.Split(strings.Join(r.Header.Values(name), ","), ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}
