package pages

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/console/internal/gateway"
)

// settings are the preferences of a person. They are stored in cookies.
type settings struct {
	Language string
	Theme    string // light, dark, or empty for the setting of the system
	Zone     *time.Location
}

func (s *Server) settingsOf(r *http.Request) settings {
	chosen := settings{Language: s.language(r), Zone: time.UTC}
	if theme := valueOf(r, s.cookies.theme); theme == "light" || theme == "dark" {
		chosen.Theme = theme
	}
	if name, err := url.QueryUnescape(valueOf(r, s.cookies.zone)); err == nil && name != "" && len(name) < 64 {
		if zone, err := time.LoadLocation(name); err == nil && name != "Local" {
			chosen.Zone = zone
		}
	}
	return chosen
}

// pageData is the value of the dot (.) in the templates.
type pageData struct {
	settings
	visit *visit
	view  view
	Data  any

	SignedIn  bool
	Me        gateway.Me
	Role      string
	Workspace *gateway.Workspace
	Nav       []navGroup
	Pauses    []activePause
	// MorePauses is the number of pauses that are not shown.
	MorePauses int
	Done       string // the key of the message about the last action
	ZoneKey    string // the name of the cookie of the time zone
}

func newPageData(v *visit, result view) *pageData {
	p := &pageData{settings: v.settings, visit: v, view: result, Data: result.data, Me: v.me, Role: v.role,
		SignedIn: v.me.Person.ID != uuid.Nil, ZoneKey: v.server.cookies.zone}
	p.Workspace = v.layout.workspace
	if p.Workspace == nil && v.workspace != uuid.Nil && v.role != "" {
		p.Workspace = &gateway.Workspace{ID: v.workspace, Name: v.membershipName()}
	}
	p.Pauses, p.MorePauses = v.layout.pauses, v.layout.morePauses
	if p.SignedIn {
		p.Nav = v.navigation(result.nav)
	}
	if key := v.query("done"); v.server.templates.texts[v.settings.Language]["done."+key] != "" {
		p.Done = "done." + key
	}
	return p
}

// maxBanners is the number of pauses that every page shows.
const maxBanners = 3

// Actor returns the name of the person or operator who made a change. The API identifies people by
// their ids.
func (p *pageData) Actor(name string) string {
	id, isPerson := strings.CutPrefix(name, "person:")
	switch {
	case !isPerson:
		return name
	case id == p.Me.Person.ID.String():
		return p.Me.Person.Name
	}
	return p.visit.server.templates.text(p.Language, "actor.person", id[:min(8, len(id))])
}

func (v *visit) membershipName() string {
	for _, m := range v.me.Memberships {
		if m.WorkspaceID != nil && *m.WorkspaceID == v.workspace && m.WorkspaceName != nil {
			return *m.WorkspaceName
		}
	}
	return v.workspace.String()
}

// Currency is the currency of the workspace.
func (p *pageData) Currency() string {
	if p.Workspace == nil {
		return ""
	}
	return p.Workspace.Currency
}

// Title is the heading of the page.
func (p *pageData) Title() string {
	if p.view.heading != "" {
		return p.view.heading
	}
	return p.visit.server.templates.text(p.Language, p.view.title)
}

// Path returns an address in the workspace of the page.
func (p *pageData) Path(parts ...any) string {
	texts := make([]string, 0, len(parts))
	for _, part := range parts {
		texts = append(texts, textOf(part))
	}
	return p.visit.path(texts...)
}

// URL is the address of this page. If this page is the response to a form, URL is the address of
// the page with the form.
func (p *pageData) URL() string { return p.visit.returnPath() }

// With returns the address of this page with one parameter changed. An empty value removes the
// parameter.
func (p *pageData) With(name string, value any) string {
	query := p.visit.r.URL.Query()
	query.Del("done")
	if text := textOf(value); text == "" {
		query.Del(name)
	} else {
		query.Set(name, text)
	}
	if len(query) == 0 {
		return p.visit.r.URL.Path
	}
	return p.visit.r.URL.Path + "?" + query.Encode()
}

// Export returns the address of a file or page of the workspace, with the filters of this page.
func (p *pageData) Export(part string) string {
	query := p.visit.r.URL.Query()
	for _, name := range []string{"done", "starting_after"} {
		query.Del(name)
	}
	return p.visit.path(part) + "?" + query.Encode()
}

// Query returns a parameter of the address.
func (p *pageData) Query(name string) string { return p.visit.query(name) }

// Reload reports whether a script reads the page again to replace its live parts.
func (p *pageData) Reload() bool { return p.visit.Background }

// Can reports whether controls of an action are shown to the person. The gateway decides whether
// the action is permitted.
func (p *pageData) Can(action string) bool { return p.visit.can(action) }

// controls contains the roles that see the controls of each action. It must agree with the
// gateway's table of routes and roles.
var controls = map[string][]string{
	"listen":  {gateway.Operator, gateway.Owner, gateway.Developer, gateway.Compliance},
	"build":   {gateway.Operator, gateway.Owner, gateway.Developer},
	"guard":   {gateway.Operator, gateway.Owner, gateway.Compliance},
	"own":     {gateway.Operator, gateway.Owner},
	"operate": {gateway.Operator},
}

func (v *visit) can(action string) bool { return slices.Contains(controls[action], v.role) }

// permitted adds a check of the person's role to a page handler. If the role does not permit the
// action, the page responds 403.
func permitted(action string, show func(*visit) (view, error)) func(*visit) (view, error) {
	return func(v *visit) (view, error) {
		if !v.can(action) {
			return view{}, &gateway.Error{Status: http.StatusForbidden}
		}
		return show(v)
	}
}

// phoneNumber matches the phone numbers in a text.
var phoneNumber = regexp.MustCompile(`\+[1-9]\d{6,14}`)

// Phone returns a phone number, or a text with phone numbers. Viewers see the first and the last
// digits only.
func (p *pageData) Phone(number any) string { return p.visit.mask(textOf(number)) }

// mask hides the middle digits of phone numbers from viewers.
func (v *visit) mask(text string) string {
	if v.role != gateway.Viewer {
		return text
	}
	return phoneNumber.ReplaceAllStringFunc(text, func(number string) string {
		return number[:4] + strings.Repeat("•", len(number)-6) + number[len(number)-2:]
	})
}

// JSON returns a value as JSON. Viewers see masked phone numbers.
func (p *pageData) JSON(value any) (string, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return p.visit.mask(string(text)), err
}

// navEntry is an entry of the navigation.
type navEntry struct {
	Key, Icon, Path string
	Current         bool
	// action is a key of the map controls. Only people with a role in that map entry see the
	// navigation entry. If action is empty, every person sees it.
	action string
}

type navGroup struct {
	Key     string
	Entries []navEntry
}

// workspacePages are the entries for pages below /w/{workspace}. An entry is shown when a route
// with its path exists.
func workspacePages() []navGroup {
	return []navGroup{
		{Entries: []navEntry{
			{Key: "overview", Icon: "layout-dashboard", Path: ""},
			{Key: "live", Icon: "radio", Path: "live"},
			{Key: "calls", Icon: "phone", Path: "calls"},
			{Key: "requests", Icon: "list-ordered", Path: "call-requests"},
		}},
		{Key: "compliance", Entries: []navEntry{
			{Key: "why", Icon: "circle-help", Path: "why"},
			{Key: "contacts", Icon: "users", Path: "contacts"},
			{Key: "optouts", Icon: "ban", Path: "opt-outs"},
			{Key: "hours", Icon: "calendar-clock", Path: "calling-hours"},
		}},
		{Key: "service", Entries: []navEntry{
			{Key: "agents", Icon: "bot", Path: "agents"},
			{Key: "numbers", Icon: "hash", Path: "numbers"},
			{Key: "webhooks", Icon: "webhook", Path: "webhooks"},
			{Key: "wallet", Icon: "wallet", Path: "wallet"},
		}},
		{Key: "settings", Entries: []navEntry{
			{Key: "keys", Icon: "key-round", Path: "integrations/api-keys", action: "build"},
			{Key: "members", Icon: "user-cog", Path: "members"},
			{Key: "audit", Icon: "scroll-text", Path: "audit", action: "listen"},
		}},
	}
}

// operatorPages are the entries for pages below /operator.
func operatorPages() navGroup {
	return navGroup{Key: "operator", Entries: []navEntry{
		{Key: "system", Icon: "gauge", Path: "overview"},
		{Key: "workspaces", Icon: "building-2", Path: "workspaces"},
		{Key: "trunks", Icon: "network", Path: "trunks"},
		{Key: "queue", Icon: "list-ordered", Path: "queue"},
		{Key: "parked", Icon: "archive", Path: "parked"},
		{Key: "services", Icon: "server", Path: "services"},
		{Key: "opaudit", Icon: "shield", Path: "audit"},
		{Key: "people", Icon: "users", Path: "people"},
	}}
}

// navigation returns the entries that exist and that the person may see.
func (v *visit) navigation(current string) (groups []navGroup) {
	add := func(group navGroup, pattern, base string) {
		shown := navGroup{Key: group.Key}
		for _, e := range group.Entries {
			known := pattern
			if e.Path != "" {
				known, e.Path = pattern+"/"+e.Path, base+"/"+e.Path
			} else {
				e.Path = base
			}
			if (e.action == "" || v.can(e.action)) && v.server.hasRoute(known) {
				e.Current = e.Key == current
				shown.Entries = append(shown.Entries, e)
			}
		}
		if len(shown.Entries) > 0 {
			groups = append(groups, shown)
		}
	}
	if v.workspace != uuid.Nil && v.role != "" {
		for _, group := range workspacePages() {
			add(group, "GET /w/{workspace}", v.path())
		}
	}
	if v.me.Operator {
		add(operatorPages(), "GET /operator", "/operator")
	}
	return groups
}

func (s *Server) hasRoute(pattern string) bool {
	return slices.ContainsFunc(s.routes(), func(r route) bool { return r.pattern == pattern })
}

// Emergency is the address of the page that pauses dialing, or "" if the person may not pause
// dialing here.
func (p *pageData) Emergency() string {
	switch {
	case p.Me.Operator:
		return "/operator/emergency"
	case p.Workspace != nil && p.Can("listen"):
		return p.Path("emergency")
	}
	return ""
}

// IsReading reports whether the page was requested with GET.
func (p *pageData) IsReading() bool { return p.visit.r.Method == http.MethodGet }
