package console

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// recentTab opens a tab in which the local operator has just signed in. Some actions need a recent
// sign-in.
func recentTab(t *testing.T) *tab {
	t.Helper()
	b := newTab(t)
	b.signIn(t, "/")
	return b
}

// row returns the id of the table row or list item that contains the text.
func (b *tab) row(t *testing.T, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	find := `[...document.querySelectorAll("#content tr[id], #content li[id]")].find((r) => r.innerText.includes(` +
		string(quoted) + `))`
	b.await(t, find)
	return script[string](t, b, find+".id")
}

// awaitMessage waits until the page shows a message.
func (b *tab) awaitMessage(t *testing.T, message string) {
	t.Helper()
	quoted, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	b.await(t, `document.querySelector("#content")?.innerText.includes(`+string(quoted)+`)`)
}

// send sends a request with the write key of the demo workspace.
func (s *site) send(t *testing.T, method, path string, body any, status int) {
	t.Helper()
	if err := kit.NewClient(s.BaseURL, s.WriteKey).Into(t.Context(), method, path, body, status, nil); err != nil {
		t.Fatal(err)
	}
}

func TestKeys_KeyIsCreatedUsedAndRevoked(t *testing.T) {
	b := recentTab(t)
	b.check(t, "api-keys", "/w/{workspace}/integrations/api-keys")
	b.run(t, chromedp.SetValue("#name", "Shop <b>x</b>"), chromedp.Submit("#name"))
	b.await(t, `document.querySelector("#key")`)
	b.screenshot(t, "api-key")
	key := b.text(t, "#key")
	status := func() int {
		code, _, err := kit.NewClient(b.BaseURL, key).Do(t.Context(), "GET", "/v1/wallet", nil)
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	sharedstack.Equal(t, "status with the new key", status(), 200)

	b.run(t, chromedp.Click(`#content a[data-kind="primary"]`))
	b.await(t, `document.querySelector("#new-key")`)
	id := strings.TrimPrefix(b.row(t, "Shop <b>x</b>"), "key-")
	sharedstack.Equal(t, "whole key in the list", strings.Contains(b.text(t, "body"), key), false)
	b.run(t, chromedp.Click(`[data-open="revoke-`+id+`"]`), chromedp.SendKeys("#confirmation-"+id, "Shop"))
	dangerous := `document.querySelector("#revoke-` + id + ` [data-kind=danger]")`
	sharedstack.Equal(t, "button after a wrong text", script[bool](t, b, dangerous+".disabled"), true)
	b.screenshot(t, "api-key-revoke")
	prefix := script[string](t, b, `document.getElementById("confirmation-`+id+`").dataset.match`)
	script[string](t, b, `document.getElementById("confirmation-`+id+`").value = ""`)
	b.run(t, chromedp.SendKeys("#confirmation-"+id, prefix), chromedp.SendKeys("#reason-"+id, "Leaked"),
		chromedp.Click("#revoke-"+id+` [data-kind="danger"]`))
	b.awaitMessage(t, "The key was revoked.")
	sharedstack.Equal(t, "status with the revoked key", status(), 401)
}

// A colleague gets read access with a link, and later another role. The colleague sees what the
// role permits, in the same session.
func TestMembers_ColleagueGetsAccessAndLosesIt(t *testing.T) {
	const colleague = "Linus <b>x</b>"
	a := recentTab(t)
	a.send(t, "POST", "/v1/opt-outs", map[string]string{"phone_e164": "+14155550171"}, 200)
	a.check(t, "members", "/w/{workspace}/members")
	a.run(t, chromedp.Click(`[data-open="invite"]`), chromedp.Click(`#invite [data-kind="primary"]`))
	a.await(t, `document.querySelector("#link")`)
	a.screenshot(t, "member-invited")
	link := a.text(t, "#link")
	a.visit(t, "/w/{workspace}/members")
	sharedstack.Contains(t, "pending invitations", a.text(t, "#invitations"), "Viewer")

	b := newTab(t)
	command(t, b, webauthn.Enable, webauthn.EnableParams{})
	command(t, b, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{
		Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
			HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		},
	})
	b.visit(t, strings.TrimPrefix(link, b.ConsoleURL))
	b.run(t, chromedp.SetValue("#name", colleague), chromedp.Click("form[data-create] button"))
	b.await(t, `document.querySelector(".account .who b")?.innerText === "`+colleague+`"`)

	b.visit(t, "/w/{workspace}/contacts?dnd_status=dnd")
	sharedstack.Contains(t, "numbers for a viewer", b.text(t, "#results"), "••")
	sharedstack.Equal(t, "whole number for a viewer",
		script[bool](t, b, `document.documentElement.outerHTML.includes("4155550171")`), false)
	b.visit(t, "/w/{workspace}/members")
	sharedstack.Equal(t, "controls of a viewer", script[int](t, b, `document.querySelectorAll("#content form").length`), 0)
	for _, page := range []string{"integrations/api-keys", "audit"} {
		b.visit(t, "/w/{workspace}/"+page)
		sharedstack.Contains(t, page+" for a viewer", b.text(t, "#content"), "You may not do this")
	}

	a.visit(t, "/w/{workspace}/members")
	row := a.row(t, colleague)
	a.run(t, chromedp.SetValue("#"+row+" select", "developer"), chromedp.Click("#"+row+" form button"))
	a.awaitMessage(t, "The role was changed.")
	b.visit(t, "/w/{workspace}/integrations/api-keys")
	sharedstack.Contains(t, "keys for a developer", b.text(t, "#content h1"), "API keys")

	id := strings.TrimPrefix(row, "member-")
	a.run(t, chromedp.Click(`[data-open="remove-`+id+`"]`), chromedp.SendKeys("#reason-"+id, "Left"),
		chromedp.Click("#remove-"+id+` [data-kind="danger"]`))
	a.awaitMessage(t, "The person was removed.")
	b.visit(t, "/w/{workspace}/calls")
	if text := b.text(t, "body"); strings.Contains(text, "+1415555") {
		t.Errorf("page of a removed person = %q, want no number", text)
	}
}

func TestMembers_InvitationIsDeleted(t *testing.T) {
	b := recentTab(t)
	b.visit(t, "/w/{workspace}/members")
	b.run(t, chromedp.Click(`[data-open="invite"]`), chromedp.SetValue("#role", "compliance"),
		chromedp.Click(`#invite [data-kind="primary"]`))
	b.await(t, `document.querySelector("#link")`)
	link := b.text(t, "#link")
	b.visit(t, "/w/{workspace}/members")
	b.run(t, chromedp.Click("#"+b.row(t, "Compliance")+" button"))
	b.awaitMessage(t, "The invitation was deleted.")
	other := newTab(t)
	other.visit(t, strings.TrimPrefix(link, other.ConsoleURL))
	sharedstack.Equal(t, "form of a deleted invitation",
		script[bool](t, other, `document.querySelector("#name") !== null`), false)
}

func TestAudit_ShowsWhoChangedWhat(t *testing.T) {
	b := operatorTab(t)
	b.send(t, "POST", "/v1/opt-outs", map[string]string{"phone_e164": "+14155550172", "reason": "<b>x</b>"}, 200)
	b.visit(t, "/w/{workspace}/audit?object_type=opt_out&object_id=%2B14155550172")
	sharedstack.Contains(t, "entries", b.text(t, "#results"), "Number opted out")
	b.run(t, chromedp.Click("#results details summary"))
	sharedstack.Contains(t, "state after the change", b.text(t, "#results pre"), "+14155550172")
	b.screenshot(t, "audit-entry")
	b.run(t, chromedp.SetValue("#object_id", "+14155550999"), chromedp.Submit("#object_id"))
	b.awaitMessage(t, "Nothing matches these filters")
	b.check(t, "audit", "/w/{workspace}/audit")
}

func TestContacts_PersonIsCreatedEditedAndErased(t *testing.T) {
	const number = "+14155550173"
	b := recentTab(t)
	b.check(t, "contact-new", "/w/{workspace}/contacts/new")
	b.run(t, chromedp.SetValue("#phone", "+1 415 555 0173"), chromedp.SetValue("#name", "Ada <b>x</b>"),
		chromedp.SetValue("#metadata", "[1]"), chromedp.Submit("#phone"))
	b.awaitMessage(t, "The metadata must be a JSON object.")
	b.run(t, chromedp.SetValue("#metadata", `{"tier":"gold","crm":"7"}`), chromedp.Submit("#phone"))
	b.awaitMessage(t, "The contact was created.")
	sharedstack.Equal(t, "heading", b.text(t, "h1"), "Ada <b>x</b>")
	address := script[string](t, b, "location.pathname")

	// Another program changes a field while the person edits another one.
	id := address[strings.LastIndex(address, "/")+1:]
	change := map[string]any{"external_id": "4711", "metadata": map[string]string{"crm": "8"}}
	b.send(t, "PATCH", "/v1/contacts/"+id, change, 200)
	b.run(t, chromedp.SetValue("#email", "ada@example.com"), chromedp.SetValue("#metadata", `{"crm":"7"}`),
		chromedp.Submit("#email"))
	b.awaitMessage(t, "The contact was changed.")
	sharedstack.Equal(t, "external id", script[string](t, b, `document.querySelector("#external_id").value`), "4711")
	sharedstack.Contains(t, "metadata", script[string](t, b, `document.querySelector("#metadata").value`), `"crm": "8"`)
	sharedstack.Equal(t, "removed key",
		script[bool](t, b, `document.querySelector("#metadata").value.includes("tier")`), false)

	b.run(t, chromedp.Click(`[data-open="consent"]`), chromedp.SetValue("#source", "web form"),
		chromedp.SetValue("#evidence", "</pre><script>x"), chromedp.Click(`#consent [data-kind="primary"]`))
	b.awaitMessage(t, "The consent was recorded.")
	sharedstack.Contains(t, "records", b.text(t, "#records"), "Consent given")
	b.check(t, "contact", address)

	b.run(t, chromedp.Click(`[data-open="erase"]`), chromedp.SendKeys("#confirmation", number),
		chromedp.SendKeys("#erase-reason", "Request 7"), chromedp.Click(`#erase [data-kind="danger"]`))
	b.awaitMessage(t, "The person's data is being erased.")
	sharedstack.Equal(t, "name after the erasure", script[string](t, b, `document.querySelector("#name").value`), "")
	sharedstack.Contains(t, "erasures", b.text(t, "#erasures"), "Requested")
	b.visit(t, "/w/{workspace}/contacts?q="+strings.Replace(number, "+", "%2B", 1))
	sharedstack.Contains(t, "search by number", b.text(t, "#results"), number)
}

func TestContacts_PageIsAccessible(t *testing.T) {
	stack(t).send(t, "POST", "/v1/opt-outs", map[string]string{"phone_e164": "+14155550174"}, 200)
	checkPage(t, "contacts", "/w/{workspace}/contacts")
}

func TestOptOuts_OptOutIsCreatedAndRemoved(t *testing.T) {
	const number = "+14155550175"
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/opt-outs")
	b.run(t, chromedp.SetValue("#new-phone", "12"), chromedp.SetValue("#reason", "Asked"), chromedp.Submit("#new-phone"))
	b.await(t, `document.querySelector("[role=alert]")`)
	b.run(t, chromedp.SetValue("#new-phone", number), chromedp.Submit("#new-phone"))
	b.awaitMessage(t, "The number was opted out.")
	sharedstack.Contains(t, "state", b.text(t, "#found"), "This number is opted out.")
	b.check(t, "opt-outs", "/w/{workspace}/opt-outs?phone="+strings.Replace(number, "+", "%2B", 1))
	b.run(t, chromedp.Click(`[data-open="remove"]`), chromedp.SendKeys("#confirmation", number),
		chromedp.SendKeys("#remove-reason", "Agreed again"), chromedp.Click(`#remove [data-kind="danger"]`))
	b.awaitMessage(t, "The opt-out was removed.")
	sharedstack.Contains(t, "state", b.text(t, "#found"), "This number is not opted out.")
}

func TestOptOuts_ImportReportsFaultsByLine(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list.csv")
	content := "phone_e164\n+14155550176\n<b>4155\n+1 415 555 0178\n+14155550176\n"
	if err := os.WriteFile(list, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/opt-outs")
	b.run(t, chromedp.SetValue("#import-reason", "National list"), chromedp.SetUploadFiles("#file", []string{list}),
		chromedp.Submit("#import-reason"))
	b.await(t, `document.querySelector("#progress .badge")?.innerText === "Finished"`)
	sharedstack.Contains(t, "progress", b.text(t, "#progress"), "2 / 2")
	faults := b.text(t, "#faults tbody")
	sharedstack.Contains(t, "faults", faults, "<b>4155")
	sharedstack.Contains(t, "line of the fault", faults, "3")
	b.check(t, "opt-out-import", script[string](t, b, "location.pathname"))
	b.visit(t, "/w/{workspace}/opt-outs?phone=%2B14155550178")
	sharedstack.Contains(t, "state", b.text(t, "#found"), "This number is opted out.")
	sharedstack.Contains(t, "imports", b.text(t, "#import"), "National list")
}

func TestCallingHoursPage_OperatorChangesTheWindow(t *testing.T) {
	s := stack(t)
	admin, path := kit.NewClient(s.AdminURL, s.AdminToken), "/admin/v1/workspaces/"+s.WorkspaceID
	var before struct {
		Policy json.RawMessage `json:"calling_policy"`
	}
	if err := admin.Into(t.Context(), "GET", path, nil, 200, &before); err != nil {
		t.Fatal(err)
	}
	set := func(policy json.RawMessage) {
		body := map[string]json.RawMessage{"calling_policy": policy}
		if err := admin.Into(context.Background(), "PATCH", path, body, 200, nil); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { set(before.Policy) })

	b := operatorTab(t)
	b.check(t, "calling-hours", "/w/{workspace}/calling-hours")
	b.run(t, chromedp.SetValue("#start", "22:00"), chromedp.SetValue("#end", "21:30"), chromedp.Submit("#start"))
	b.await(t, `document.querySelector("#edit [role=alert]")`)
	b.run(t, chromedp.SetValue("#start", "08:00"), chromedp.Submit("#start"))
	b.awaitMessage(t, "The calling hours were changed.")
	sharedstack.Contains(t, "week", b.text(t, "#week"), "08:00–21:30")

	set(json.RawMessage(`{"packs":["de"]}`))
	b.run(t, chromedp.SetValue("#end", "20:00"), chromedp.Submit("#end"))
	b.awaitMessage(t, "Someone changed the calling hours meanwhile.")
	b.check(t, "calling-hours-number", "/w/{workspace}/calling-hours?phone=%2B493012345678")
	sharedstack.Contains(t, "holidays", b.text(t, "#holidays"), "Tag der Arbeit")
	sharedstack.Contains(t, "local time", b.text(t, "#now"), "Europe/Berlin")
}
