package console

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// speak changes the language of the pages.
func (b *tab) speak(t *testing.T, language string) {
	t.Helper()
	script[int](t, b, fmt.Sprintf(`fetch("/preferences", {method: "POST", body: new URLSearchParams({language: %q})})
		.then((r) => r.status)`, language))
}

// park stores a parked record for the tests. The record is not in Kafka, so a replay cannot apply
// it.
func (s *site) park(t *testing.T) (eventID string) {
	t.Helper()
	eventID = uuid.Must(uuid.NewV7()).String()
	s.exec(t, `INSERT INTO calls.dead_letters (consumer, topic, event_id, key, error)
		VALUES ('calls', 'dial-events.v1', $1, 'key <b>', 'newer than this build <script>x')`, eventID)
	t.Cleanup(func() { s.exec(t, `DELETE FROM calls.dead_letters WHERE event_id = $1`, eventID) })
	return eventID
}

// inviteOperator creates an invitation and returns its id.
func (b *tab) inviteOperator(t *testing.T) string {
	t.Helper()
	b.visit(t, "/operator/invitations")
	b.run(t, chromedp.Click(`[data-open="invite"]`), chromedp.Click(`#invite [data-kind="primary"]`))
	b.shows(t, "pre.code", "/invitations/rfi_")
	b.run(t, chromedp.Click("#content a.button"))
	b.await(t, `document.querySelector('[data-open^="withdraw-"]')`)
	id := script[string](t, b, `document.querySelector('[data-open^="withdraw-"]').dataset.open`)
	return strings.TrimPrefix(id, "withdraw-")
}

// Every dialog that ends, stops or deletes something asks for a reason, in both languages.
func TestForms_AskForAReasonInBothLanguages(t *testing.T) {
	const number = "+14155550172"
	b := freshTab(t)
	b.send(t, "POST", "/v1/opt-outs", map[string]string{"phone_e164": number}, 200)
	var contacts struct{ Data []struct{ ID string } }
	path := "/v1/contacts?phone=" + url.QueryEscape(number)
	if err := kit.NewClient(b.BaseURL, b.WriteKey).Into(t.Context(), "GET", path, nil, 200, &contacts); err != nil {
		t.Fatal(err)
	}
	invitation, event := b.inviteOperator(t), b.park(t)
	dialogs := []struct{ name, path, dialog string }{
		{name: "hang-up-all", path: "/w/{workspace}/emergency", dialog: "hang-up-all"},
		{name: "opt-out-removal", path: "/w/{workspace}/opt-outs?phone=" + url.QueryEscape(number), dialog: "remove"},
		{name: "erasure", path: "/w/{workspace}/contacts/" + contacts.Data[0].ID, dialog: "erase"},
		{name: "agent-deletion", path: "/w/{workspace}/agents/" + b.AgentID, dialog: "delete"},
		{name: "suspension", path: "/operator/workspaces/{workspace}", dialog: "suspend"},
		{name: "invitation-withdrawal", path: "/operator/invitations", dialog: "withdraw-" + invitation},
		{name: "replay", path: "/operator/parked", dialog: "replay-calls-" + event},
		{name: "top-up", path: "/w/{workspace}/wallet", dialog: "top-up"},
	}
	for language, label := range map[string]string{"en": "Reason", "de": "Grund"} {
		b.speak(t, language)
		for _, d := range dialogs {
			t.Run(language+"/"+d.name, func(t *testing.T) {
				b.visit(t, d.path)
				script[int](t, b, axe+";0")
				dialog := fmt.Sprintf("document.getElementById(%q)", d.dialog)
				b.run(t, chromedp.Click(`[data-open="`+d.dialog+`"]`))
				b.await(t, dialog+".open")
				b.screenshot(t, "reason-"+d.name+"-"+language)
				text := script[string](t, b, dialog+`.querySelector("[name=reason]").labels[0].innerText`)
				sharedstack.Contains(t, "label", text, label)
				script[string](t, b, dialog+`.querySelectorAll("[data-match]").forEach((e) => e.value = e.dataset.match), ""`)
				valid := script[bool](t, b, dialog+`.querySelector("form").checkValidity()`)
				sharedstack.Equal(t, "the form is complete without a reason", valid, false)
				for _, fault := range b.axe(t) {
					t.Error(fault)
				}
			})
		}
	}
}

func TestInvitations_WithdrawnInvitationDisappears(t *testing.T) {
	b := freshTab(t)
	invitation := b.inviteOperator(t)
	b.check(t, "operator-invitations", "/operator/invitations")
	b.run(t, chromedp.Click(`[data-open="withdraw-`+invitation+`"]`),
		chromedp.SendKeys("#reason-"+invitation, "Wrong <b>person"),
		chromedp.Click("#withdraw-"+invitation+` [data-kind="danger"]`))
	b.shows(t, "#content", "The invitation was withdrawn.")
	b.await(t, fmt.Sprintf("!document.getElementById(%q)", "invitation-"+invitation))
	var audit struct {
		Data []struct {
			Route string
			After map[string]any
		}
	}
	b.admin(t, "GET", "/audit?limit=5", nil, 200, &audit)
	sharedstack.Equal(t, "route", audit.Data[0].Route, "/console/v1/operator-invitations/{invitation_id}")
	sharedstack.Equal(t, "reason", audit.Data[0].After["reason"], any("Wrong <b>person"))
}

func TestParkedPage_RecordThatCannotBeReplayedStaysParked(t *testing.T) {
	b := operatorTab(t)
	event := b.park(t)
	b.check(t, "parked", "/operator/parked")
	b.shows(t, "#results", "newer than this build <script>x")
	b.run(t, chromedp.Click(`[data-open="replay-calls-`+event+`"]`),
		chromedp.SendKeys("#reason-calls-"+event, "Release 9"),
		chromedp.Click(`#replay-calls-`+event+` [data-kind="primary"]`))
	b.shows(t, "#content", "Some records of the key are still parked.")
	b.shows(t, "#results", "key <b>")
}

// A second person changes an agent while its form is open. The form must report the change, and the
// first person must be able to save again.
func TestAgentForm_ReportsAChangeByASecondPerson(t *testing.T) {
	b := operatorTab(t)
	var made struct{ ID string }
	settings := map[string]any{"name": "Shared", "kind": "openai_realtime"}
	b.admin(t, "POST", "/workspaces/{workspace}/agents", settings, 201, &made)
	agent := b.path("/workspaces/{workspace}/agents/" + made.ID)
	t.Cleanup(func() { b.admin(t, "DELETE", agent, nil, 200, nil) })
	b.visit(t, "/")
	for language, want := range map[string]string{"en": "Someone changed this in the meantime.",
		"de": "Jemand hat dies inzwischen geändert."} {
		b.speak(t, language)
		b.visit(t, "/w/{workspace}/agents/"+made.ID)
		b.admin(t, "PATCH", agent, map[string]any{"greeting": "Hello " + language}, 200, nil)
		b.run(t, chromedp.SetValue("#name", "Mine "+language), chromedp.SendKeys("#settings-reason", "Ticket 7"),
			chromedp.Submit("#name"))
		b.shows(t, "#agent-fault", want)
		b.screenshot(t, "agent-conflict-"+language)
		name := script[string](t, b, `document.querySelector("#name").value`)
		sharedstack.Equal(t, "the entered name", name, "Mine "+language)
		b.run(t, chromedp.Submit("#name"))
		b.shows(t, "h1", "Mine "+language)
	}
	b.speak(t, "en")
	b.check(t, "agent-opening", "/w/{workspace}/agents/"+made.ID)
	sharedstack.Contains(t, "first words", b.text(t, "#opening"), "you are talking to an AI assistant")
	sharedstack.Contains(t, "recording notice", b.text(t, "#opening"), "This call is recorded.")
}

// One call costs few requests, because the page reads only the call that changed.
func TestLivePage_FollowsACallWithFewRequests(t *testing.T) {
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/live")
	b.await(t, `document.querySelector("[data-connection][data-state=open]")`)
	script[bool](t, b, `(() => {
		window.reads = [];
		const original = window.fetch;
		window.fetch = async (url, options) => {
			const response = await original(url, options);
			const cost = response.headers.get("RF-Cost");
			if (cost) window.reads.push({ calls: options.headers["RF-Calls"] ?? "", cost: Number(cost) });
			return response;
		};
		return true;
	})()`)
	call := b.awaitCall(t, b.place(t, "+14155550102"))
	b.await(t, fmt.Sprintf("document.getElementById(%q)", "ended-"+call))
	reads := script[[]struct {
		Calls string
		Cost  int
	}](t, b, "window.reads")
	ofCall := 0
	for _, read := range reads {
		if read.Calls != call {
			continue
		}
		ofCall++
		if read.Cost > 3 {
			t.Errorf("requests of a read of one call = %d, want at most 3", read.Cost)
		}
	}
	if ofCall == 0 {
		t.Errorf("reads = %v, want reads of the call only", reads)
	}
	b.await(t, fmt.Sprintf("!document.getElementById(%q)", "live-"+call))
}
