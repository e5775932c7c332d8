package console

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/test/kit/sharedstack"
)

// recordingSeconds is the length of the recording of the test.
const recordingSeconds = 4

// tone returns a recording as the dialer stores it: WAV with mu-law in two channels, 8000 samples a
// second. It contains a tone.
func tone() []byte {
	const rate, channels = 8000, 2
	sound := make([]byte, recordingSeconds*rate*channels)
	for i := range sound {
		sound[i] = 0xff // silence
		if math.Sin(float64(i/channels)*2*math.Pi*440/rate) > 0 {
			sound[i] = 0x90
		}
	}
	file := []byte("RIFF\x00\x00\x00\x00WAVEfmt ")
	for _, field := range []any{uint32(18), uint16(7), uint16(channels), uint32(rate), uint32(rate * channels),
		uint16(channels), uint16(8), uint16(0)} {
		file, _ = binary.Append(file, binary.LittleEndian, field) // these types have a fixed size
	}
	file = append(append(file, "data"...), binary.LittleEndian.AppendUint32(nil, uint32(len(sound)))...)
	file = append(file, sound...)
	binary.LittleEndian.PutUint32(file[4:], uint32(len(file)-8))
	return file
}

// addRecording stores a recording of a call. The simulated carrier transports no sound.
func (s *site) addRecording(t *testing.T, call string) {
	t.Helper()
	key := recordingstore.Key(uuid.MustParse(s.WorkspaceID), uuid.MustParse(call), time.Now())
	path := filepath.Join(s.home, "recordings", filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, tone(), 0o600); err != nil {
		t.Fatal(err)
	}
	changed := s.exec(t, "UPDATE calls.calls SET recording_key = $1 WHERE id = $2", key, call)
	sharedstack.Equal(t, "changed calls", changed, int64(1))
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
func TestCall_PlaysItsRecording(t *testing.T) {
	s := stack(t)
	call := s.awaitCall(t, s.place(t, "+14155550103"))
	s.addRecording(t, call)
	b := operatorTab(t)
	b.visit(t, "/w/{workspace}/calls/"+call)
	if script[bool](t, b, `document.querySelector("#reason") !== null`) { // no earlier test gave a reason
		b.run(t, chromedp.SetValue("#reason", "ticket 9"), chromedp.Submit("#reason"))
	}
	b.await(t, `document.querySelector("canvas[data-wave]:not([hidden])")`)
	b.await(t, fmt.Sprintf(`document.querySelector("audio").duration === %d`, recordingSeconds))
	painted := script[int](t, b, `(() => {
		const wave = document.querySelector("canvas[data-wave]");
		const pixels = wave.getContext("2d").getImageData(0, wave.height / 4, wave.width, 1).data;
		return pixels.filter((value, i) => i % 4 === 3 && value > 0).length;
	})()`)
	if painted == 0 {
		t.Error("the waveform has no bar of a quarter of its height")
	}
	b.screenshot(t, "call-recording")

	// All turns of the simulated conversation are near the start of the recording. Therefore the
	// script moves the last turn to 2.5 s.
	script[int](t, b, `document.querySelector("audio").addEventListener("play", () => window.played = true),
		document.querySelector(".turns .turn:last-child button").dataset.offset = 2.5, 0`)
	b.run(t, chromedp.Click(`.turns .turn:last-child button`))
	b.await(t, "window.played === true")
	b.await(t, `document.querySelector("audio").currentTime >= 2.5`)
	script[int](t, b, `document.querySelector("audio").pause(), 0`)
	b.run(t, chromedp.Click("canvas[data-wave]")) // clicks in the middle of the waveform
	b.await(t, fmt.Sprintf(`Math.abs(document.querySelector("audio").currentTime - %d / 2) < 0.2`, recordingSeconds))

	part := script[string](t, b, `fetch(document.querySelector("audio").src, {headers: {Range: "bytes=0-3"}})
		.then(async (r) => r.status + " " + r.headers.get("Content-Range") + " " + await r.text())`)
	sharedstack.Equal(t, "first four bytes", part, fmt.Sprintf("206 bytes 0-3/%d RIFF", len(tone())))
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
