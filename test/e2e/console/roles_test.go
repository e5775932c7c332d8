package console

import (
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"ringfence.dev/test/kit/sharedstack"
)

// personTab opens a tab in which a new person with a role is signed in through the OpenID provider.
func personTab(t *testing.T, operator *tab, role string) *tab {
	t.Helper()
	if operator.provider == nil {
		t.Skip("a running stack (RINGFENCE_RUNNING) has no OpenID provider")
	}
	link := script[string](t, operator, fmt.Sprintf(`fetch(%q, {method: "POST", body: new URLSearchParams({role: %q})})
		.then((r) => r.text()).then((page) => page.match(/\/invitations\/rfi_[a-z2-7]{52}/)[0])`,
		operator.path("/w/{workspace}/members/invitations"), role))
	name := "The " + role
	operator.provider.signInAs("subject-of-"+role, name)
	b := newTab(t)
	b.visit(t, link)
	b.run(t, chromedp.Click(`a[href^="/sign-in/oidc/start"]`))
	b.shows(t, ".account .who b", name)
	return b
}

// status returns the HTTP status of a page, or of a form that is sent.
func (b *tab) status(t *testing.T, method, path string, form url.Values) int {
	t.Helper()
	request := fmt.Sprintf("{method: %q}", method)
	if form != nil {
		request = fmt.Sprintf("{method: %q, body: new URLSearchParams(%q)}", method, form.Encode())
	}
	return script[int](t, b, fmt.Sprintf("fetch(%q, %s).then((r) => r.status)", b.path(path), request))
}

// A person whose role does not permit an action sees no control for it. If the person sends the
// form anyway, the gateway refuses it.
func TestRoles_ForbiddenActionsAreHiddenAndRefused(t *testing.T) {
	a := recentTab(t)
	a.visit(t, "/w/{workspace}/calling-hours")
	hours := script[string](t, a, `document.querySelector("#edit input[name=was]").value`)
	const number = "+14155550179" // no other test uses this number
	a.send(t, "POST", "/v1/opt-outs", map[string]string{"phone_e164": number}, 200)
	encoded := url.QueryEscape(number)
	all := []string{"owner", "developer", "compliance"}
	builders, guards, owners := []string{"owner", "developer"}, []string{"owner", "compliance"}, []string{"owner"}
	actions := []struct {
		name          string
		page, control string
		path          string
		form          url.Values
		roles         []string
	}{
		{name: "place a call", page: "call-requests/new", control: "form[method=post] button[data-kind=primary]",
			path: "call-requests/new", form: url.Values{"agent_id": {a.AgentID}, "to": {"+14155550101"}}, roles: builders},
		{name: "pause", page: "emergency", control: `form[action$="/emergency"]`, path: "emergency",
			form: url.Values{"scope": {"workspace:" + a.WorkspaceID}, "state": {"paused"}, "reason": {"x"},
				"confirmation": {"PAUSE"}}, roles: all},
		{name: "hang up all", page: "emergency", control: `[data-open="hang-up-all"]`, path: "emergency/hangup",
			form: url.Values{"confirmation": {"Demo"}, "reason": {"x"}}, roles: owners},
		{name: "opt out", page: "opt-outs", control: `form[action$="/opt-outs"]`, path: "opt-outs",
			form: url.Values{"phone": {"+14155550178"}}, roles: all},
		{name: "remove an opt-out", page: "opt-outs?phone=" + encoded, control: `[data-open="remove"]`,
			path: "opt-outs/remove", form: url.Values{"phone": {number}, "confirmation": {number}, "reason": {"x"}},
			roles: guards},
		{name: "create a contact", page: "contacts/new", control: "form[method=post]", path: "contacts/new",
			form: url.Values{"phone": {"+14155550178"}}, roles: all},
		{name: "create an agent", page: "agents/new", control: "form[method=post]", path: "agents/new",
			form: url.Values{"name": {"x"}}, roles: builders},
		{name: "delete an agent", page: "agents/" + a.AgentID, control: `[data-open="delete"]`,
			path: "agents/" + a.AgentID + "/delete", form: url.Values{"confirmation": {"Ada"}, "reason": {"x"}},
			roles: builders},
		{name: "add a number", page: "numbers", control: "#add", path: "numbers",
			form: url.Values{"phone_e164": {"+14155550141"}, "agent_id": {a.AgentID}}},
		{name: "change the calling hours", page: "calling-hours", control: "#edit", path: "calling-hours",
			form: url.Values{"start": {"08:00"}, "end": {"20:00"}, "timezone": {"recipient"}, "was": {hours}}},
		{name: "top up", page: "wallet", control: `[data-open="top-up"]`, path: "wallet/transactions",
			form: url.Values{"amount": {"1"}, "confirmation": {"1"}, "key": {"k"}, "reason": {"x"}}},
		{name: "create a key", page: "integrations/api-keys", control: `form[action$="/api-keys"]`,
			path: "integrations/api-keys", form: url.Values{"name": {"x"}, "access": {"read"}}, roles: builders},
		{name: "add an endpoint", page: "webhooks/new", control: "form[method=post]", path: "webhooks/new",
			form: url.Values{"name": {"x"}, "url": {"https://127.0.0.1:1/"}, "events": {"call.completed"}}, roles: builders},
		{name: "invite", page: "members", control: `[data-open="invite"]`, path: "members/invitations",
			form: url.Values{"role": {"owner"}}, roles: owners},
	}
	for _, role := range []string{"viewer", "compliance", "developer", "owner"} {
		t.Run(role, func(t *testing.T) {
			b := personTab(t, a, role)
			for _, action := range actions {
				b.visit(t, "/w/{workspace}/"+action.page)
				permitted := slices.Contains(action.roles, role)
				shown := script[bool](t, b, fmt.Sprintf(`document.querySelector("#content").querySelector(%q) !== null`,
					action.control))
				sharedstack.Equal(t, "control of: "+action.name, shown, permitted)
				if !permitted {
					status := b.status(t, "POST", "/w/{workspace}/"+action.path, action.form)
					sharedstack.Equal(t, "status of: "+action.name, status, 403)
				}
			}
			for _, page := range []string{"overview", "workspaces", "trunks", "people", "invitations", "emergency"} {
				status := b.status(t, "GET", "/operator/"+page, nil)
				sharedstack.Equal(t, "status of the operators' page "+page, status, 403)
			}
		})
	}
}
