package console

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// admin sends a request with the operator token.
func (s *site) admin(t *testing.T, method, path string, body any, status int, into any) {
	t.Helper()
	client := kit.NewClient(s.AdminURL, s.AdminToken)
	if err := client.Into(context.Background(), method, "/admin/v1"+s.path(path), body, status, into); err != nil {
		t.Error(err)
	}
}

// resumeLater ends the pause of a scope after the test.
func (s *site) resumeLater(t *testing.T, path string) {
	t.Helper()
	t.Cleanup(func() { s.admin(t, "PUT", path, map[string]string{"state": "active"}, 200, nil) })
}

// shows waits until an element contains a text.
func (b *tab) shows(t *testing.T, selector, text string) {
	t.Helper()
	b.await(t, fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", selector, text))
}

// freshTab opens a tab with a new sign-in, which some actions need.
func freshTab(t *testing.T) *tab {
	t.Helper()
	b := newTab(t)
	b.signIn(t, "/")
	return b
}

func TestOperatorPages_AreAccessible(t *testing.T) {
	for name, path := range map[string]string{
		"system":             "/operator/overview",
		"queue":              "/operator/queue",
		"services":           "/operator/services",
		"operator-audit":     "/operator/audit",
		"operator-spaces":    "/operator/workspaces",
		"workspace-new":      "/operator/workspaces/new",
		"workspace-settings": "/operator/workspaces/{workspace}",
		"people":             "/operator/people",
		"emergency-system":   "/operator/emergency",
		"emergency":          "/w/{workspace}/emergency",
		"agents":             "/w/{workspace}/agents",
		"agent-new":          "/w/{workspace}/agents/new",
		"numbers":            "/w/{workspace}/numbers",
	} {
		t.Run(name, func(t *testing.T) { checkPage(t, name, path) })
	}
}

func TestEmergencyPage_PausesAndResumesAllDialing(t *testing.T) {
	b := operatorTab(t)
	b.resumeLater(t, "/dialing")
	b.visit(t, "/operator/emergency")
	b.run(t, chromedp.SetValue("#scope", "everything"), chromedp.SendKeys("#reason", "Incident <b>7"))
	sharedstack.Equal(t, "the button is disabled before the word is typed",
		script[bool](t, b, `document.querySelector('#pause [data-kind="danger"]').disabled`), true)
	b.run(t, chromedp.SendKeys("#pause-confirmation", "PAUSE"), chromedp.Click(`#pause [data-kind="danger"]`))
	b.shows(t, "#content", "Dialing is paused.")
	b.shows(t, "#stops", "Incident <b>7")
	b.shows(t, "#changes", "Incident <b>7")
	b.visit(t, "/w/{workspace}/calls")
	b.shows(t, "#banners", "All dialing is paused. “Incident <b>7”")
	b.check(t, "emergency-paused", "/operator/emergency")
	b.run(t, chromedp.Click(`#stops form button`))
	b.shows(t, "#content", "Dialing was resumed.")
	b.shows(t, "#stops", "Nothing is paused")
}

func TestEmergency_PauseOfAnAgentEndsByItself(t *testing.T) {
	b := operatorTab(t)
	b.resumeLater(t, "/workspaces/{workspace}/agents/"+b.AgentID+"/dialing")
	b.visit(t, "/w/{workspace}/emergency?scope=agent:{workspace}:"+b.AgentID)
	b.run(t, chromedp.SendKeys("#reason", "Hallucinates"), chromedp.SetValue("#until", "2020-01-01T10:00"),
		chromedp.SendKeys("#pause-confirmation", "PAUSE"), chromedp.Submit("#reason"))
	b.shows(t, "#until-fault", "must be in the future")
	reason := script[string](t, b, `document.querySelector("#reason").value`)
	sharedstack.Equal(t, "the reason is kept", reason, "Hallucinates")
	until := script[string](t, b, `new Date(Date.now() + 36e5 * 24 * 30).toISOString().slice(0, 16)`)
	b.run(t, chromedp.SetValue("#until", until), chromedp.SendKeys("#pause-confirmation", "PAUSE"),
		chromedp.Submit("#reason"))
	b.shows(t, "#stops", "Dialing of an agent is paused.")
	b.shows(t, "#stops", "Hallucinates")
	b.visit(t, "/operator/emergency")
	// The audit entry of the pause contains the workspace of the agent, so this page can resume the
	// agent.
	b.run(t, chromedp.Click(`#stops form button`))
	b.shows(t, "#stops", "Nothing is paused")
}

func TestEmergency_CallsOfAWorkspaceAreHungUp(t *testing.T) {
	b := freshTab(t)
	const ringing = "+14155550198" // this phone rings for 20 s
	b.place(t, ringing)
	b.visit(t, "/operator/emergency")
	b.run(t, chromedp.Click(b.path(`#workspaces a[href="/w/{workspace}/emergency"]`)))
	b.shows(t, "#calls", ringing)
	name := script[string](t, b, `document.querySelector("#confirmation").dataset.match`)
	b.run(t, chromedp.Click(`[data-open="hang-up-all"]`), chromedp.SendKeys("#confirmation", name),
		chromedp.SendKeys("#hang-up-reason", "Incident 7"), chromedp.Click(`#hang-up-all [data-kind="danger"]`))
	b.shows(t, "#content", "The calls are being hung up.")
	b.shows(t, "#calls", "No call runs")

	b.place(t, ringing)
	b.shows(t, "#calls", ringing) // the page shows the call without a reload
	b.run(t, chromedp.Click(`#calls a[data-kind="danger"]`))
	b.await(t, `document.readyState === "complete" && document.querySelector("form #reason")`)
	sharedstack.Equal(t, "heading", b.text(t, "h1"), "Hang up a call")
	b.run(t, chromedp.SendKeys("#reason", "Incident 7"), chromedp.Click(`#content [data-kind="danger"]`))
	b.shows(t, "#content", "The call is being ended.")
	b.visit(t, "/w/{workspace}/emergency")
	b.shows(t, "#calls", "No call runs")
}

func TestSystemPage_ShowsAPauseWithoutAReload(t *testing.T) {
	b := operatorTab(t)
	const path = "/workspaces/{workspace}/dialing"
	b.resumeLater(t, path)
	b.visit(t, "/operator/overview")
	b.shows(t, "[data-connection]", "Updates every 5 s")
	script[bool](t, b, "window.notReloaded = true")
	b.admin(t, "PUT", path, map[string]string{"state": "paused", "reason": "Wrong <b>script</b>"}, 200, nil)
	b.shows(t, "#attention", "Wrong <b>script</b>")
	b.shows(t, "#services", "dialer")
	sharedstack.Equal(t, "page was not loaded again", script[bool](t, b, "window.notReloaded === true"), true)
}

func TestTrunks_CanBeAddedCheckedChangedAndRemoved(t *testing.T) {
	b := operatorTab(t)
	b.check(t, "trunk-new", "/operator/trunks/new")
	b.run(t, chromedp.SetValue("#name", "Carrier <b>"), chromedp.SetValue("#host", "sip example"),
		chromedp.Submit("#name"))
	b.shows(t, "#host-fault", "host")
	b.run(t, chromedp.SetValue("#host", "sip.example.com"), chromedp.SetValue("#inbound_sources", "192.0.2.0/24"),
		chromedp.SetValue("#username", "ringfence"), chromedp.SetValue("#password", "secret"),
		chromedp.Submit("#name"))
	b.shows(t, "#content", "The trunk was added.")
	page := script[string](t, b, "location.pathname")
	b.check(t, "trunk", page)
	b.run(t, chromedp.Click(`form[action$="/check"] button`))
	b.await(t, `document.querySelector("#check, [role=alert]")`) // the simulated carrier cannot check a trunk
	b.check(t, "trunks", "/operator/trunks")
	b.visit(t, "/operator/queue")
	b.shows(t, "#content", "Carrier <b>")

	b.visit(t, page+"/settings")
	b.run(t, chromedp.SetValue("#channels", "8"), chromedp.Submit("#name"))
	b.shows(t, "#content", "The settings were saved.")
	var trunk map[string]any
	b.admin(t, "GET", strings.TrimPrefix(page, "/operator"), nil, 200, &trunk)
	sharedstack.Equal(t, "channels", trunk["channels"], any(8.0))
	sharedstack.Equal(t, "stored password", trunk["has_password"], any(true))

	b.run(t, chromedp.Click(`[data-open="remove"]`), chromedp.SendKeys("#confirmation", "Carrier <b>"),
		chromedp.SendKeys("#remove-reason", "Replaced"), chromedp.Click(`#remove [data-kind="danger"]`))
	b.shows(t, "#content", "The trunk was removed.")
}

func TestWorkspaces_CanBeCreatedChangedAndSuspended(t *testing.T) {
	b := operatorTab(t)
	b.visit(t, "/operator/workspaces/new")
	b.run(t, chromedp.SetValue("#name", "Acme <b>"), chromedp.SetValue("#mode", "test"),
		chromedp.SetValue("#currency", "money"), chromedp.Submit("#name"))
	b.shows(t, "#currency-fault", "currency must be")
	b.run(t, chromedp.SetValue("#currency", "EUR"), chromedp.Submit("#name"))
	b.shows(t, "#content", "The workspace was created.")
	b.shows(t, "h1", "Acme <b>")

	b.run(t, chromedp.SetValue("#max_live_calls", "7"), chromedp.SetValue("#calling_policy", `{"window":`),
		chromedp.Submit("#name"))
	b.shows(t, "#calling_policy-fault", "not valid JSON")
	policy := `{"window":{"start":"10:00","end":"12:00"},"timezone":"recipient"}`
	b.run(t, chromedp.SetValue("#calling_policy", policy), chromedp.Submit("#name"))
	b.shows(t, "#content", "The settings were saved.")
	sharedstack.Equal(t, "limit", script[string](t, b, `document.querySelector("#max_live_calls").value`), "7")
	sharedstack.Contains(t, "policy", script[string](t, b, `document.querySelector("#calling_policy").value`), "10:00")

	b.run(t, chromedp.SetValue("#rates", "+49 0.02 60\nbad"), chromedp.Submit("#rates"))
	b.shows(t, "#rates-fault", "Line 2")
	b.run(t, chromedp.SetValue("#rates", "+49 0.02 60"), chromedp.Submit("#rates"))
	b.shows(t, "#content", "The rates were saved.")

	b.run(t, chromedp.Click(`[data-open="suspend"]`), chromedp.SendKeys("#suspend-reason", "Fraud <i>"),
		chromedp.SendKeys("#confirmation", "Acme <b>"), chromedp.Click(`#suspend [data-kind="danger"]`))
	b.shows(t, "#content", "The workspace is suspended.")
	b.shows(t, "#banners", "Fraud <i>")
	b.run(t, chromedp.Click(`[data-open="activate"]`), chromedp.SendKeys("#activate-reason", "Paid"),
		chromedp.Click(`#activate [data-kind="primary"]`))
	b.shows(t, "#content", "The workspace is active again.")
	sharedstack.Equal(t, "banner after the suspension", b.text(t, "#banners"), "")
}

func TestAgents_CanBeCreatedChangedAndDeleted(t *testing.T) {
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/agents/new")
	b.run(t, chromedp.SetValue("#name", "Ada <b>"), chromedp.SetValue("#settings", `{"kind":"none"}`),
		chromedp.Submit("#name"))
	b.shows(t, "#settings-fault", "kind must be")
	b.run(t, chromedp.SetValue("#settings", `{"kind":"scripted","greeting":"Hello <i>"}`), chromedp.Submit("#name"))
	b.shows(t, "#content", "The agent was created.")
	sharedstack.Contains(t, "settings", script[string](t, b, `document.querySelector("#settings").value`), "Hello <i>")

	b.run(t, chromedp.SetValue("#settings", `{"kind":"scripted"}`), chromedp.Submit("#name"))
	b.shows(t, "#content", "The settings were saved.")
	settings := script[string](t, b, `document.querySelector("#settings").value`)
	if strings.Contains(settings, "greeting") {
		t.Errorf("settings = %s, want no greeting", settings)
	}
	b.check(t, "agent", script[string](t, b, "location.pathname"), chromedp.Click("#versions summary"))
	sharedstack.Equal(t, "removed greeting", b.text(t, "#versions del"), "Hello <i>")
	b.run(t, chromedp.Click(`[data-open="delete"]`), chromedp.SendKeys("#confirmation", "Ada <b>"),
		chromedp.SendKeys("#delete-reason", "Test"), chromedp.Click(`#delete [data-kind="danger"]`))
	b.shows(t, "#content", "The agent was deleted.")
}

func TestNumbers_CanBeAddedAndRemoved(t *testing.T) {
	b := operatorTab(t)
	const number = "+14155550142"
	b.visit(t, "/w/{workspace}/numbers")
	b.run(t, chromedp.SetValue("#phone_e164", "5"), chromedp.SetValue("#agent_id", b.AgentID),
		chromedp.Submit("#phone_e164"))
	b.shows(t, "[role=alert]", "E.164")
	b.run(t, chromedp.SetValue("#phone_e164", "+1 415 555 0142"), chromedp.Submit("#phone_e164"))
	b.shows(t, "#results", number)
	id := script[string](t, b, fmt.Sprintf(`[...document.querySelectorAll("#results tr")]
		.find((r) => r.innerText.includes(%q)).querySelector("[data-open]").dataset.open`, number))
	b.run(t, chromedp.Click(`[data-open="`+id+`"]`), chromedp.SendKeys("#"+id+" input", number),
		chromedp.SendKeys("#"+id+" input[name=reason]", "Returned"), chromedp.Click("#"+id+` [data-kind="danger"]`))
	b.shows(t, "#content", "The number was removed.")
}

// A person becomes an operator with the link of an invitation, and is then signed out by another
// operator.
func TestPeople_OperatorIsInvitedAndSignedOut(t *testing.T) {
	b := freshTab(t)
	b.visit(t, "/operator/people")
	b.run(t, chromedp.Click(`[data-open="invite"]`), chromedp.Click(`#invite [data-kind="primary"]`))
	b.shows(t, "pre.code", "/invitations/rfi_")
	link, err := url.Parse(b.text(t, "pre.code"))
	if err != nil {
		t.Fatal(err)
	}
	other := newTab(t)
	other.addAuthenticator(t)
	other.visit(t, link.Path)
	other.run(t, chromedp.SetValue("#name", "Joan <b>"), chromedp.Click("form[data-create] button"))
	other.shows(t, ".account .who b", "Joan <b>")
	other.visit(t, "/operator/services")
	other.shows(t, "#results", "dialer")

	b.visit(t, "/operator/people")
	script[int](t, b, `[...document.querySelectorAll("#results .main-link")]
		.find((e) => e.innerText === "Joan <b>").click(), 0`)
	b.shows(t, "h1", "Joan <b>")
	b.check(t, "person", script[string](t, b, "location.pathname"))
	b.run(t, chromedp.Click(`[data-open="recovery"]`), chromedp.Click(`#recovery [data-kind="primary"]`))
	b.shows(t, "pre.code", "/invitations/rfi_")
	b.run(t, chromedp.Click(`#content a.button`))
	b.await(t, `document.querySelector('form[action$="/sign-out"] button') && document.querySelector("#remove")`)
	b.run(t, chromedp.Click(`#content form[action$="/sign-out"] button`))
	b.shows(t, "#content", "The sessions of the person ended.")
	other.visit(t, "/operator/services")
	other.shows(t, "body", "Your session")

	b.run(t, chromedp.Click(`[data-open="remove"]`), chromedp.SendKeys("#confirmation", "Joan <b>"),
		chromedp.SendKeys("#remove-reason", "Left"), chromedp.Click(`#remove [data-kind="danger"]`))
	b.shows(t, "#content", "The person is no longer an operator.")
	b.shows(t, "#roles", "No role")
}
