package console

import (
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

func TestWhyPage_ExplainsWhyANumberMayNotBeCalled(t *testing.T) {
	s := stack(t)
	const number = "+14155550177"
	body := map[string]string{"phone_e164": number}
	if err := kit.NewClient(s.BaseURL, s.WriteKey).Into(t.Context(), "POST", "/v1/opt-outs", body, 200, nil); err != nil {
		t.Fatal(err)
	}
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/why?phone="+strings.Replace(number, "+", "%2B", 1))
	sharedstack.Contains(t, "answer", b.text(t, "#now"), "This number may not be called.")
	sharedstack.Contains(t, "gates", b.text(t, "#now .gates"), "Opt-out")
	b.check(t, "why", "/w/{workspace}/why?phone=%2B14155550177")
}

func TestWebhooks_EndpointIsAddedTestedPausedAndDeleted(t *testing.T) {
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/webhooks/new")
	b.check(t, "webhook-new", "/w/{workspace}/webhooks/new")
	b.run(
		t,
		chromedp.SetValue("#name", "Orders <b>"),
		chromedp.SetValue("#url", "http://localhost/hooks"),
		chromedp.Submit("#name"),
	)
	b.await(t, `document.querySelector("[role=alert]")`)
	sharedstack.Contains(t, "refusal", b.text(t, "[role=alert]"), "https")

	b.run(t, chromedp.SetValue("#url", "https://127.0.0.1:1/hooks"), chromedp.Submit("#name"))
	b.await(t, `document.querySelector("pre.code")`)
	if secret := b.text(t, "pre.code"); !regexp.MustCompile(`^whsec_|.{20,}`).MatchString(secret) {
		t.Errorf("secret = %q, want a signing secret", secret)
	}
	b.run(t, chromedp.Click("#content a.button"))
	b.await(t, `document.querySelector("h1")?.innerText === "Orders <b>"`)
	b.run(t, chromedp.Click(`form[action$="/test"] button`))
	b.await(t, `document.querySelector("#results .main-link")?.innerText === "webhook.test"`)
	b.run(t, chromedp.Click(`#results .main-link`))
	b.await(t, `document.querySelector("#attempts, #reason")`)
	// The page asks for a reason if no earlier test gave one.
	if script[bool](t, b, `document.querySelector("#reason") !== null`) {
		b.run(t, chromedp.SetValue("#reason", "ticket 8"), chromedp.Submit("#reason"))
	}
	b.await(t, `document.readyState === "complete" && document.querySelector("#attempts")`)
	b.check(t, "webhook-delivery", script[string](t, b, "location.pathname"))
	b.run(t, chromedp.Click(`.crumbs a:last-of-type`))
	b.await(t, `document.readyState === "complete" && document.querySelector("#replay")`)
	b.check(t, "webhook", script[string](t, b, "location.pathname"))

	b.run(t, chromedp.Click(`form[action$="/status"] button`))
	b.await(t, `document.querySelector("#state .badge")?.innerText === "Paused"`)
	b.run(t, chromedp.Click(`[data-open="rotate"]`), chromedp.Click(`#rotate [data-kind="primary"]`))
	b.await(t, `document.querySelector("pre.code")`)
	b.run(t, chromedp.Click("#content a.button"))
	b.await(t, `document.querySelector("#delete")`)
	b.run(t, chromedp.Click(`[data-open="delete"]`), chromedp.SendKeys("#confirmation", "Orders <b>"),
		chromedp.SendKeys("#delete-reason", "Moved"), chromedp.Click(`#delete [data-kind="danger"]`))
	b.await(t, `document.querySelector("#content").innerText.includes("The endpoint was deleted.")`)
}

func TestWebhooks_PageIsAccessible(t *testing.T) { checkPage(t, "webhooks", "/w/{workspace}/webhooks") }

func TestWallet_PageIsAccessible(t *testing.T) {
	s := stack(t)
	s.awaitCall(t, s.place(t, "+14155550101"))
	checkPage(t, "wallet", "/w/{workspace}/wallet")
}

func TestWallet_OperatorAddsCreditOnce(t *testing.T) {
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/wallet?type=top_up")
	b.run(
		t,
		chromedp.Click(`[data-open="top-up"]`),
		chromedp.SendKeys("#amount", "12.5"),
		chromedp.SendKeys("#confirmation", "12"),
		chromedp.SendKeys("#top-up-reason", "invoice 7"),
		chromedp.Click(`#top-up [data-kind="primary"]`),
	)
	b.await(t, `document.querySelector("#content").innerText.includes("Nothing was changed")`)
	b.visit(t, "/w/{workspace}/wallet?type=top_up")
	b.run(
		t,
		chromedp.Click(`[data-open="top-up"]`),
		chromedp.SendKeys("#amount", "12.5"),
		chromedp.SendKeys("#confirmation", "12.5"),
		chromedp.SendKeys("#top-up-reason", "invoice 7"),
		chromedp.Click(`#top-up [data-kind="primary"]`),
	)
	b.await(t, `document.querySelector("#content").innerText.includes("The credit was added.")`)
	sharedstack.Contains(t, "ledger", b.text(t, "#results"), "invoice 7")
}
