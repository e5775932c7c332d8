package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// awaitRecording waits until the recording of a simulated call is stored.
func (s *site) awaitRecording(t *testing.T, call string) {
	t.Helper()
	client := kit.NewClient(s.BaseURL, s.WriteKey) // the operator API does not show the link
	var found struct {
		URL *string `json:"recording_url"`
	}
	err := kit.Until(t.Context(), callLimit, "the recording is stored", func() (bool, error) {
		err := client.Into(context.Background(), "GET", "/v1/calls/"+call, nil, 200, &found)
		return found.URL != nil, err
	})
	if err != nil {
		t.Fatal(fmt.Errorf("call %s: %w", call, err))
	}
}

// exec changes the database of the stack and returns the number of changed rows.
func (s *site) exec(t *testing.T, sql string, args ...any) int64 {
	t.Helper()
	var state struct {
		Ports    map[string]int
		Password string `json:"postgres_password"`
	}
	text, err := os.ReadFile(filepath.Join(s.home, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}
	address := url.URL{Scheme: "postgres", User: url.UserPassword("ringfence", state.Password),
		Host: fmt.Sprintf("127.0.0.1:%d", state.Ports["postgres"]), Path: "ringfence"}
	// This context is also valid in cleanups, in which t.Context() is canceled.
	ctx := context.WithoutCancel(t.Context())
	db, err := pgx.Connect(ctx, address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(ctx) }()
	changed, err := db.Exec(ctx, sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	return changed.RowsAffected()
}

// A click on a turn of the transcript, or on the waveform, moves the player. The browser requests
// parts of the recording.
func TestCallPage_PlaysTheRecording(t *testing.T) {
	s := stack(t)
	call := s.awaitCall(t, s.place(t, "+14155550103"))
	s.awaitRecording(t, call)
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/calls/"+call)
	if script[bool](t, b, `document.querySelector("#reason") !== null`) { // no earlier test gave a reason
		b.run(t, chromedp.SetValue("#reason", "ticket 9"), chromedp.Submit("#reason"))
	}
	b.await(t, `document.querySelector("canvas[data-wave]:not([hidden])")`)
	b.await(t, `document.querySelector("audio").duration > 0`)
	painted := script[int](t, b, `(() => {
		const wave = document.querySelector("canvas[data-wave]");
		const pixels = wave.getContext("2d").getImageData(0, wave.height / 4, wave.width, 1).data;
		return pixels.filter((value, i) => i % 4 === 3 && value > 0).length;
	})()`)
	if painted == 0 {
		t.Error("the waveform has no bar of a quarter of its height")
	}
	b.screenshot(t, "call-recording")

	script[int](t, b, `document.querySelector("audio").addEventListener("play", () => window.played = true), 0`)
	b.run(t, chromedp.Click(`.turns .turn:last-child button`))
	b.await(t, "window.played === true")
	b.await(t, `((turn) => Number(turn.dataset.offset) > 0 &&
		document.querySelector("audio").currentTime >= Number(turn.dataset.offset))(
		document.querySelector(".turns .turn:last-child button"))`)
	script[int](t, b, `document.querySelector("audio").pause(), 0`)
	b.run(t, chromedp.Click("canvas[data-wave]")) // clicks in the middle of the waveform
	b.await(t, `((audio) => Math.abs(audio.currentTime - audio.duration / 2) < 0.05 * audio.duration)(
		document.querySelector("audio"))`)

	part := script[string](t, b, `fetch(document.querySelector("audio").src, {headers: {Range: "bytes=0-3"}})
		.then(async (r) => r.status + " " + r.headers.get("Content-Range") + " " + await r.text())`)
	length := script[int](t, b, `Math.round(document.querySelector("audio").duration * 16000) + 58`)
	sharedstack.Equal(t, "first four bytes", part, fmt.Sprintf("206 bytes 0-3/%d RIFF", length))
}

// Pages are read, and lists are filtered, without the scripts of the console.
func TestPages_CanBeReadWithoutJavaScript(t *testing.T) {
	s := stack(t)
	const number = "+14155550102"
	s.awaitCall(t, s.place(t, number))
	b := operatorTab(t)
	command(t, b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	for path, want := range map[string]string{
		"/w/{workspace}/calls?to=%2B14155550102":  number,
		"/w/{workspace}/call-totals":              "Ended calls:",
		"/w/{workspace}/why?phone=%2B14155550102": "Time zone",
		"/w/{workspace}/wallet":                   "Spendable",
		"/operator/services":                      "dialer",
	} {
		b.visit(t, path)
		sharedstack.Contains(t, path, b.text(t, "#content"), want)
	}
	b.visit(t, "/w/{workspace}/calls")
	script[string](t, b, fmt.Sprintf(`document.querySelector("#to").value = %q`, number))
	b.press(t, "details.more summary")
	b.await(t, `document.querySelector("details.more").open`)
	sharedstack.Equal(t, "pixels outside of the window", script[int](t, b,
		"document.documentElement.scrollWidth - document.documentElement.clientWidth"), 0)
	b.press(t, `.filters [data-kind="primary"]`)
	b.await(t, `location.search.includes("to=%2B14155550102")`)
	b.press(t, "#results .main-link")
	b.await(t, `document.querySelector("#timeline")`)
	sharedstack.Contains(t, "timeline", b.text(t, "#timeline"), "was requested.")
}

// press clicks in the middle of an element. Unlike chromedp.Click, it needs no scripts in the page.
func (b *tab) press(t *testing.T, selector string) {
	t.Helper()
	at := script[[2]float64](t, b, fmt.Sprintf(`(() => {
		const element = document.querySelector(%q);
		element.scrollIntoView({block: "center"});
		const box = element.getBoundingClientRect();
		return [box.x + box.width / 2, box.y + box.height / 2];
	})()`, selector))
	b.run(t, chromedp.MouseClickXY(at[0], at[1]))
}

// focus describes the element that has the focus.
type focus struct {
	Found, Visible bool
	Name           string
}

// tabTo presses Tab until the element has the focus. Every element on the way must show its focus.
func (b *tab) tabTo(t *testing.T, selector string) {
	t.Helper()
	const most = 200
	for range most {
		b.run(t, chromedp.KeyEvent(kb.Tab))
		at := script[focus](t, b, fmt.Sprintf(`(() => {
			const e = document.activeElement, style = getComputedStyle(e);
			return {found: e.matches(%q), name: e.outerHTML.slice(0, 120),
				visible: e === document.body || style.outlineStyle !== "none" || style.boxShadow !== "none"};
		})()`, selector))
		if !at.Visible {
			t.Errorf("the focus is not visible at %s", at.Name)
		}
		if at.Found {
			return
		}
	}
	t.Fatalf("%d times Tab do not reach %s", most, selector)
}

// The test creates and removes an opt-out with the keyboard only.
func TestOptOuts_WorkByKeyboard(t *testing.T) {
	const number = "+14155550171"
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/opt-outs")
	b.tabTo(t, "a.skip")
	b.run(t, chromedp.KeyEvent(kb.Enter))
	b.await(t, `document.activeElement.id === "content"`)
	b.tabTo(t, "#new-phone")
	b.run(t, chromedp.KeyEvent(number))
	b.tabTo(t, "#new #reason")
	b.run(t, chromedp.KeyEvent("Asked"), chromedp.KeyEvent(kb.Enter))
	b.shows(t, "#content", "The number was opted out.")

	b.tabTo(t, `[data-open="remove"]`)
	b.run(t, chromedp.KeyEvent(kb.Enter))
	b.await(t, `document.querySelector("#remove[open]")?.contains(document.activeElement)`)
	b.run(t, chromedp.KeyEvent(kb.Escape))
	b.await(t, `!document.querySelector("#remove[open]") && document.activeElement.matches("[data-open=remove]")`)
	b.run(t, chromedp.KeyEvent(kb.Enter))
	b.await(t, `document.activeElement.id === "confirmation"`)
	b.run(t, chromedp.KeyEvent(number))
	b.tabTo(t, "#remove-reason")
	b.run(t, chromedp.KeyEvent("Agreed again"))
	b.tabTo(t, `#remove [data-kind="danger"]`)
	b.run(t, chromedp.KeyEvent(kb.Enter))
	b.shows(t, "#content", "The opt-out was removed.")
}
