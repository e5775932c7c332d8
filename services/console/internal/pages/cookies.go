package pages

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	// sessionAge is how long the browser keeps the session cookie. The gateway ends the session
	// earlier if it is not used.
	sessionAge = 12 * time.Hour
	attemptAge = 10 * time.Minute
	reasonAge  = time.Hour
	choiceAge  = 365 * 24 * time.Hour
)

// cookies contains the names of the cookies. Browsers accept the prefix __Host- only with HTTPS.
// With plain HTTP, the names contain the port, because all ports of a host share the cookies.
type cookies struct {
	secure                              bool
	session, attempt, reason, passedURL string
	invitation                          string
	language, theme, zone               string
}

func newCookies(address *url.URL) cookies {
	prefix := "__Host-rf"
	if address.Scheme != "https" {
		prefix = "rf-" + address.Port()
	}
	return cookies{secure: address.Scheme == "https", session: prefix, attempt: prefix + "-attempt",
		reason: prefix + "-reason", passedURL: prefix + "-next", invitation: prefix + "-invitation",
		language: prefix + "-language", theme: prefix + "-theme", zone: prefix + "-zone"}
}

func (c cookies) set(w http.ResponseWriter, name, value string, age time.Duration) {
	cookie := &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(age.Seconds()), HttpOnly: true,
		Secure: c.secure, SameSite: http.SameSiteLaxMode}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

func valueOf(r *http.Request, name string) string {
	// With the prefix __Host-, a browser has only one cookie with this name. Without the prefix, on
	// plain HTTP, there can be several, and the first one is used.
	cookie, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// setReason stores an operator's reason for reading the transcripts of one workspace in a cookie.
// The cookie is valid for one session only, so the next person who signs in cannot use the reason.
func (c cookies) setReason(w http.ResponseWriter, token string, workspace uuid.UUID, reason string) {
	encoded := base64.RawURLEncoding.EncodeToString([]byte(reason))
	c.set(w, c.reason, markOf(token)+"."+workspace.String()+"."+encoded, reasonAge)
}

func (c cookies) reasonFor(r *http.Request, token string, workspace uuid.UUID) string {
	encoded, found := strings.CutPrefix(valueOf(r, c.reason), markOf(token)+"."+workspace.String()+".")
	reason, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || !found {
		return ""
	}
	return string(reason)
}

// markOf returns a text that identifies a session token and does not reveal it.
func markOf(token string) string {
	hash := sha256.Sum256([]byte(token))
	return hex.EncodeToString(hash[:8])
}

// localPath returns text if it is a path of this console, and "/" otherwise. It refuses characters
// that a browser would replace or remove.
func localPath(text string) string {
	address, err := url.Parse(text)
	if err != nil || address.IsAbs() || address.Host != "" || !strings.HasPrefix(text, "/") ||
		strings.HasPrefix(text, "//") || strings.ContainsAny(text, "\\\t\r\n") || len(text) > 2000 {
		return "/"
	}
	return text
}
