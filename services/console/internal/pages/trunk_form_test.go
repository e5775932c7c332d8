package pages

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/services/console/internal/gateway"
)

const (
	trunkPage    = "/operator/trunks/" + agentID
	trunkAPIPath = "/admin/v1/trunks/" + agentID
)

var savedTrunk = tagged{etag: `"7"`, body: map[string]any{"id": agentID, "name": "Carrier",
	"host": "sip.example.com", "port": 5061,
	"transport": "tls", "status": "active", "username": "ringfence", "has_password": true, "register": true,
	"caller_ids": []string{"+14155550101", "+14155550102"}, "codecs": []string{"opus"}, "channels": 30,
	"ca_certificates": "line 1\nline 2\n", "outbound_proxy": nil}}

// trunkForm reads the form of the page's trunk, as a browser does.
func trunkForm(t *testing.T, s site) url.Values {
	t.Helper()
	body := s.get(trunkPage + "/settings").Body.String()
	_, version, found := strings.Cut(body, `name="version" value="`)
	version, _, closed := strings.Cut(version, `">`)
	if !found || !closed || version == "" {
		t.Fatalf("the form has no version:\n%s", body)
	}
	return url.Values{"version": {html.UnescapeString(version)}, "name": {"Carrier"},
		"host": {"sip.example.com"}, "port": {"5061"},
		"transport": {"tls"}, "status": {"active"}, "username": {"ringfence"}, "register": {"true"},
		"caller_ids": {"+14155550101\r\n+14155550102"}, "codecs": {"opus"}, "channels": {"30"},
		"ca_certificates": {"line 1\r\nline 2\r\n"}, "password": {""}}
}

func TestTrunkForm_SendsOnlyTheChangedSettings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change url.Values
		want   map[string]any
	}{
		"nothing": {url.Values{}, map[string]any{}},
		"a list and a number": {url.Values{"caller_ids": {"+14155550101, +14155550103\n"}, "channels": {" 40 "}},
			map[string]any{"caller_ids": []any{"+14155550101", "+14155550103"}, "channels": 40.0}},
		"an empty number keeps its value": {url.Values{"port": {""}}, map[string]any{}},
		"an empty text and an empty list": {url.Values{"username": {""}, "codecs": {""}, "ca_certificates": {""}},
			map[string]any{"username": nil, "codecs": []any{}, "ca_certificates": nil}},
		"a choice":              {url.Values{"register": {"false"}}, map[string]any{"register": false}},
		"a password":            {url.Values{"password": {" secret "}}, map[string]any{"password": " secret "}},
		"a password is deleted": {url.Values{"remove_password": {"1"}}, map[string]any{"password": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Operator)
			s.set("GET "+trunkAPIPath, savedTrunk)
			form := trunkForm(t, s)
			for field, value := range tt.change {
				form[field] = value
			}
			wantHeader(t, s.submit(trunkPage+"/settings", form), "Location", trunkPage+"?done=trunk_changed")
			if diff := cmp.Diff(tt.want, decode(t, s.body(trunkAPIPath))); diff != "" {
				t.Errorf("body differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrunkForm_RefusedFormKeepsItsValues(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		field, value, want string
		status, sent       int
	}{
		"a number":          {"channels", "many", "This must be a whole number.", 422, 0},
		"of the gateway":    {"host", hostile, `id="host-fault" role="alert">host must be`, 422, 1},
		"by another person": {"version", "old", "Someone changed this in the meantime.", 412, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Operator)
			s.set("GET "+trunkAPIPath, savedTrunk)
			s.set("PATCH "+trunkAPIPath, refuse(`"host must be a host name or an IP address."`))
			form := trunkForm(t, s)
			form.Set("username", "other")
			form.Set(tt.field, tt.value)
			w := s.submit(trunkPage+"/settings", form)
			wantStatus(t, w, tt.status)
			wantBody(t, w, tt.want)
			wantBody(t, w, `name="username" type="text" value="other"`)
			if strings.Contains(w.Body.String(), "<script>alert") {
				t.Error("the page contains a script of the form")
			}
			sent := 0
			for _, r := range s.sent(trunkAPIPath) {
				if r.Method == http.MethodPatch {
					sent++
				}
			}
			if sent != tt.sent {
				t.Errorf("PATCH requests = %d, want %d", sent, tt.sent)
			}
		})
	}
}

func TestTrunkForm_AddsATrunkWithTheGivenSettings(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	s.set("POST /admin/v1/trunks", map[string]any{"id": agentID})
	wantStatus(t, s.get("/operator/trunks/new"), http.StatusOK)
	form := url.Values{"name": {"Carrier"}, "host": {"sip.example.com"}, "port": {""}, "transport": {""},
		"inbound_sources": {"192.0.2.0/24\r\n"}, "password": {"secret"}}
	wantHeader(t, s.submit("/operator/trunks/new", form), "Location", trunkPage+"?done=trunk_created")
	want := map[string]any{"name": "Carrier", "host": "sip.example.com", "inbound_sources": []any{"192.0.2.0/24"},
		"password": "secret"}
	if diff := cmp.Diff(want, decode(t, s.body("/admin/v1/trunks"))); diff != "" {
		t.Errorf("body differs (-want +got):\n%s", diff)
	}

	s.set("POST /admin/v1/trunks", refuse(`"name is missing; name the trunk."`))
	w := s.submit("/operator/trunks/new", url.Values{"host": {"sip.example.com"}, "password": {"secret"}})
	wantStatus(t, w, http.StatusUnprocessableEntity)
	wantBody(t, w, `id="name-fault" role="alert">name is missing`)
	if strings.Contains(w.Body.String(), "secret") {
		t.Error("the page contains the password")
	}
}

func TestTrunkForm_RemovesATrunkWhoseNameIsTyped(t *testing.T) {
	t.Parallel()
	for confirmation, want := range map[string]string{"": trunkPage + "?done=not_confirmed",
		"carrier": trunkPage + "?done=not_confirmed", "Carrier": "/operator/trunks?done=trunk_removed"} {
		s := newSite(t, gateway.Operator)
		s.set("GET "+trunkAPIPath, savedTrunk)
		w := s.submit(trunkPage+"/remove", url.Values{"confirmation": {confirmation}, "reason": {"x"}})
		wantHeader(t, w, "Location", want)
	}
}

// A refused form keeps the version that the person saw. After a change by another person, the form
// has the new version.
func TestTrunkForm_RefusedFormKeepsItsVersion(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	s.set("GET "+trunkAPIPath, savedTrunk)
	form := trunkForm(t, s)
	s.set("GET "+trunkAPIPath, tagged{etag: `"8"`, body: savedTrunk.body})
	form.Set("channels", "many")
	wantBody(t, s.submit(trunkPage+"/settings", form), `name="version" value="&#34;7&#34;"`)
	form.Set("channels", "40")
	w := s.submit(trunkPage+"/settings", form)
	wantStatus(t, w, http.StatusPreconditionFailed)
	wantBody(t, w, `name="version" value="&#34;8&#34;"`)
}
