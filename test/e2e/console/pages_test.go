package console

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

func TestOverview_PageIsAccessible(t *testing.T) {
	s := stack(t)
	s.awaitCall(t, s.place(t, "+14155550101"))
	checkPage(t, "overview", "/w/{workspace}")
}

func TestLive_PageIsAccessible(t *testing.T) { checkPage(t, "live", "/w/{workspace}/live") }

func TestHangUp_PageIsAccessible(t *testing.T) {
	s := stack(t)
	checkPage(t, "hang-up", "/w/{workspace}/calls/"+s.awaitCall(t, s.place(t, "+14155550103"))+"/hangup")
}

func TestCalls_PageIsAccessible(t *testing.T) {
	s := stack(t)
	s.awaitCall(t, s.place(t, "+14155550190"))
	checkPage(t, "calls", "/w/{workspace}/calls")
}

func TestRequests_PageIsAccessible(t *testing.T) {
	checkPage(t, "call-requests", "/w/{workspace}/call-requests")
}

func TestPlaceCall_PageIsAccessible(t *testing.T) {
	checkPage(t, "place-call", "/w/{workspace}/call-requests/new?to=%2B14155550101")
}

func TestWorkspaces_PageIsAccessible(t *testing.T) { checkPage(t, "workspaces", "/workspaces") }

func TestNotFound_PageIsAccessible(t *testing.T) { checkPage(t, "not-found", "/w/{workspace}/none") }

func TestLivePage_CallMovesThroughItsStatesWithoutAReload(t *testing.T) {
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/live")
	b.await(t, `document.querySelector("[data-connection][data-state=open]")`)
	script[bool](t, b, "window.notReloaded = true")

	b.place(t, "+14155550198") // this phone rings for 20 s
	b.await(t, `[...document.querySelectorAll("#live .to")].some((e) => e.innerText === "+14155550198")`)
	b.await(t, `document.querySelector("#live .badge")?.innerText === "Ringing"`)
	b.screenshot(t, "live-ringing")
	// The script sends a turn over a BroadcastChannel, as another tab with an open stream does.
	script[bool](t, b, `(() => {
		const list = document.querySelector("[data-turns]");
		const call = document.querySelector("#live .live").id.slice("live-".length);
		new BroadcastChannel("rf-stream:" + list.dataset.turns).postMessage(
			{ event: { type: "call.turn", call_id: call, role: "person", text: "<img src=x onerror=alert(1)>Hello?" } });
		return true;
	})()`)
	b.await(t, `document.querySelector("#live .last-turn:not([hidden])")?.textContent ===
		"Person: <img src=x onerror=alert(1)>Hello?"`)
	b.screenshot(t, "live-turn")
	b.run(t, chromedp.Click(`#live .live a[data-kind="danger"]`))
	b.await(t, `document.readyState === "complete" && document.querySelector("#reason")`)
	sharedstack.Equal(t, "heading", b.text(t, "h1"), "Hang up a call")
	b.run(t, chromedp.SendKeys("#reason", "Wrong <b>person"), chromedp.Click(`#content [data-kind="danger"]`))
	b.await(t, `document.querySelector(".note[data-tone=good]")`)
	sharedstack.Equal(t, "page after the action", script[string](t, b, "location.pathname"), b.path("/w/{workspace}/live"))
	b.await(
		t,
		`[...document.querySelectorAll("#ended li")]
		.some((e) => e.innerText.includes("+14155550198") && e.innerText.includes("Canceled"))`,
	)

	script[bool](t, b, "window.notReloaded = true")
	b.place(t, "+14155550102")
	b.await(t, `[...document.querySelectorAll("#ended li")].some((e) => e.innerText.includes("+14155550102"))`)
	sharedstack.Equal(t, "page was not loaded again", script[bool](t, b, "window.notReloaded === true"), true)
}

func TestCallPage_ShowsTheTranscriptAfterAReasonIsGiven(t *testing.T) {
	s := stack(t)
	call := s.awaitCall(t, s.place(t, "+14155550103"))
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/calls/"+call)
	for _, want := range []string{"The call to +14155550103 was requested.", "All checks allowed the call.",
		"Someone answered.", "The conversation ended after"} {
		sharedstack.Contains(t, "timeline", b.text(t, "#timeline"), want)
	}
	sharedstack.Contains(t, "conversation before a reason", b.text(t, "#turns"), "Operators give a reason")

	b.run(t, chromedp.SetValue("#reason", "ticket 7"))
	b.refreshRegions(t)
	sharedstack.Equal(t, "reason after the page was refreshed",
		script[string](t, b, "document.querySelector('#reason').value"), "ticket 7")
	b.run(t, chromedp.Submit("#reason"))
	b.await(t, `document.querySelector(".turn")`)
	if turns := b.text(t, ".turns"); !strings.Contains(turns, "Agent") {
		t.Errorf("transcript = %q, want turns of the agent", turns)
	}
	b.check(t, "call", "/w/{workspace}/calls/"+call)
}

func TestLivePage_KilledProcessesLoseNoSessionAndNoEvent(t *testing.T) {
	b := operatorTab(t)
	if b.own == nil {
		t.Skip("a running stack (RINGFENCE_RUNNING) was not started by this test")
	}
	b.visit(t, "/w/{workspace}/live")
	b.await(t, `document.querySelector("[data-connection][data-state=open]")`)
	script[bool](t, b, "window.notReloaded = true")
	for i, name := range []string{"console", "gateway", "webhook-dispatcher"} {
		if !b.own.KillOne(name, 0) {
			t.Fatalf("%s was not killed", name)
		}
		if err := b.own.AwaitReady(t.Context(), pageLimit); err != nil {
			t.Fatal(err)
		}
		to := "+1415555010" + string(rune('4'+i))
		b.awaitCall(t, b.place(t, to))
		b.await(t, `[...document.querySelectorAll("#ended li")].some((e) => e.innerText.includes("`+to+`"))`)
		sharedstack.Equal(t, "page was not loaded again after the kill of "+name,
			script[bool](t, b, "window.notReloaded === true"), true)
	}
}

func TestBanner_ShowsAPauseOnEveryPage(t *testing.T) {
	s := stack(t)
	set := func(state string) {
		body := map[string]string{"state": state, "reason": "Wrong <b>script</b>"}
		path := "/admin/v1/workspaces/" + s.WorkspaceID + "/dialing"
		err := kit.NewClient(s.AdminURL, s.AdminToken).Into(context.Background(), "PUT", path, body, 200, nil)
		if err != nil {
			t.Error(err)
		}
	}
	set("paused")
	t.Cleanup(func() { set("active") })
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/calls")
	sharedstack.Contains(t, "banner", b.text(t, "#banners"), "Dialing of workspace ")
	sharedstack.Contains(t, "banner", b.text(t, "#banners"), " is paused. “Wrong <b>script</b>” by local")
	b.check(t, "paused", "/workspaces")
	set("active")
	b.visit(t, "/w/{workspace}/calls")
	sharedstack.Equal(t, "banner after the pause", b.text(t, "#banners"), "")
}
