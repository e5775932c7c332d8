package console

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// sipSite starts a stack whose dialer calls over SIP. sipp answers the calls and sends the audio
// back. The agents talk with a fake of the Realtime API, which talks until the call is hung up.
func sipSite(t *testing.T) *site {
	t.Helper()
	browser(t)
	if _, err := exec.LookPath(kit.Program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("sipp is missing: install Debian's sip-tester")
		}
		t.Skip("SKIPPED: sipp answers the calls of this test: apt-get install sip-tester")
	}
	rings := kit.Respond("180 Ringing") + kit.Answer() + kit.ExpectBye()
	farm, err := kit.StartSipp(t.Context(), t.TempDir(),
		kit.Script(`([0-9][0-9])`, []string{"number"}, kit.When(1, "number", []int{23}, rings), kit.Over()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(farm.Stop)
	base, err := sharedstack.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := base.End(!t.Failed()); err != nil {
			t.Error(err)
		}
	})
	model, err := base.Model([]map[string]any{{"heard": "…", "text": "Go <b>on."}})
	if err != nil {
		t.Fatal(err)
	}
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	err = base.Start("CARRIER=sip", fmt.Sprintf("SIP_UDP_ADDR=127.0.0.1:%d", port), "REALTIME_URL="+model,
		"REALTIME_KEY=the-operators", "DRAIN_LIMIT=1s")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Demo: base.Demo, home: base.Home, bin: base.Bin, own: base}
	trunk := map[string]any{"name": "farm", "host": "127.0.0.1", "port": farm.Port, "channels": 20, "calls_per_second": 20,
		"caller_ids": []string{"+14155550100"}}
	s.admin(t, "POST", "/trunks", trunk, 201, nil)
	if err := s.record(); err != nil {
		t.Fatal(err)
	}
	return s
}

// The page shows the words of a real call while it runs: the dialer publishes the turn, and the
// event stream sends it.
func TestLivePage_ShowsTheWordsOfACall(t *testing.T) {
	s := sipSite(t)
	var agent struct{ ID string }
	settings := map[string]any{"name": "Ada", "kind": "openai_realtime"}
	s.admin(t, "POST", "/workspaces/{workspace}/agents", settings, 201, &agent)
	s.AgentID = agent.ID
	b := newTabOn(t, s)
	b.signIn(t, "/")
	// An operator must give a reason before the page shows a transcript.
	script[int](t, b, fmt.Sprintf(`fetch(%q, {method: "POST", body: new URLSearchParams({reason: "ticket 7", next: "/"})})
		.then((r) => r.status)`, b.path("/w/{workspace}/reason")))
	for language, by := range map[string]string{"en": "Agent:", "de": "Agent:"} {
		b.speak(t, language)
		b.visit(t, "/w/{workspace}/live")
		b.await(t, `document.querySelector("[data-connection][data-state=open]")`)
		script[int](t, b, axe+";0")
		b.place(t, "+14155550123")
		b.await(t, fmt.Sprintf(`document.querySelector("#live .last-turn:not([hidden])")?.innerText.startsWith(%q)`, by))
		b.await(t, `document.querySelector("#live .last-turn .said").innerText.length > 5`)
		b.screenshot(t, "live-words-"+language)
		for _, fault := range b.axe(t) {
			t.Error(fault)
		}
		b.run(t, chromedp.Click(`#live .live a[data-kind="danger"]`))
		b.await(t, `document.readyState === "complete" && document.querySelector("#reason")`)
		b.run(t, chromedp.SendKeys("#reason", "Test"), chromedp.Click(`#content [data-kind="danger"]`))
		b.await(t, `document.querySelector("#ended li") && !document.querySelector("#live .live")`)
	}
}
