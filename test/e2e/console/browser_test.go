package console

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"ringfence.dev/test/kit"
)

const (
	// pageLimit ends a test whose page hangs.
	pageLimit = 60 * time.Second
	callLimit = 60 * time.Second
)

// axe is axe-core 4.14.1 (MPL-2.0), which checks accessibility.
//
//go:embed testdata/axe.min.js
var axe string

var chromium struct {
	once   sync.Once
	ctx    context.Context //nolint:containedctx // the chromedp allocator of the browser that all tests share
	reason string
}

// browser returns the context of the browser that all tests share. Without Chromium the test is
// skipped, or fails in CI.
func browser(t *testing.T) context.Context {
	t.Helper()
	chromium.once.Do(func() {
		path := ""
		for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
			if found, err := exec.LookPath(name); err == nil {
				path = found
				break
			}
		}
		if path == "" {
			chromium.reason = "SKIPPED: the console is tested in Chromium, which is not installed: apt-get install chromium"
			return
		}
		options := []chromedp.ExecAllocatorOption{
			chromedp.ExecPath(path),
			chromedp.Headless,
			chromedp.DisableGPU,
			chromedp.NoSandbox,
			chromedp.NoFirstRun,
			chromedp.Flag("disable-dev-shm-usage", true),
			chromedp.Flag("hide-scrollbars", true),
		}
		allocator, _ := chromedp.NewExecAllocator(context.Background(), options...) // the browser ends with this process
		ctx, _ := chromedp.NewContext(allocator)
		if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
			chromium.reason = fmt.Sprintf("SKIPPED: Chromium does not start: %v", err)
			return
		}
		chromium.ctx = ctx
	})
	if chromium.reason != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(chromium.reason)
		}
		t.Skip(chromium.reason)
	}
	return chromium.ctx
}

// tab is a tab of the browser with its own cookies.
type tab struct {
	*site
	ctx context.Context //nolint:containedctx // chromedp identifies a tab by its context

	mu     sync.Mutex
	faults []string // errors of scripts, refusals of the content security policy, requests to other hosts
	bytes  float64  // the number of received bytes since the last visit
}

// newTab opens a tab without a session, for the stack that all tests share.
func newTab(t *testing.T) *tab {
	t.Helper()
	return newTabOn(t, stack(t))
}

func newTabOn(t *testing.T, s *site) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser(t), chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{site: s, ctx: ctx}
	host := strings.TrimPrefix(s.ConsoleURL, "http://")
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.fault("script: " + e.ExceptionDetails.Text + " " + e.ExceptionDetails.Exception.Description)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
				b.fault(fmt.Sprintf("log: %s %s", e.Entry.Source, e.Entry.Text))
			}
		case *network.EventRequestWillBeSent:
			if address, err := url.Parse(e.Request.URL); err == nil && address.Host != host && address.Host != "" {
				b.fault("request to another host: " + e.Request.URL)
			}
		case *network.EventLoadingFinished:
			b.mu.Lock()
			b.bytes += e.EncodedDataLength
			b.mu.Unlock()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	command(t, b, network.Enable, network.EnableParams{})
	command(t, b, log.Enable, cdp.Empty{})
	command(t, b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"})
	return b
}

func (b *tab) fault(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, text)
}

// run carries out actions, one after the other.
func (b *tab) run(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, pageLimit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// value carries out an action that returns a value.
func value[T any](t *testing.T, b *tab, action chromedp.Action[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, pageLimit)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// command sends a command of the Chrome DevTools Protocol.
func command[P, R any](t *testing.T, b *tab, c cdp.Command[P, R], params P) R {
	t.Helper()
	result, err := chromedp.Call(b.ctx, c, params)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// script evaluates an expression, or waits for its promise.
func script[T any](t *testing.T, b *tab, expression string) T {
	t.Helper()
	return value(t, b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// operatorTab opens a tab in which the local operator is signed in.
func operatorTab(t *testing.T) *tab {
	t.Helper()
	b := newTab(t)
	if b.operator == "" {
		b.signIn(t, "/")
		b.operator = b.cookie(t)
		return b
	}
	httpOnly := true
	command(
		t,
		b,
		network.SetCookie,
		network.SetCookieParams{Name: b.cookieName(), Value: b.operator, URL: b.ConsoleURL, HTTPOnly: &httpOnly},
	)
	return b
}

func (b *tab) cookieName() string {
	address, err := url.Parse(b.ConsoleURL)
	if err != nil {
		return ""
	}
	return "rf-" + address.Port()
}

// cookie returns the value of the session cookie.
func (b *tab) cookie(t *testing.T) string {
	t.Helper()
	for _, c := range command(t, b, network.GetCookies, network.GetCookiesParams{}).Cookies {
		if c.Name == b.cookieName() {
			return c.Value
		}
	}
	return ""
}

// signIn opens a page without a session, enters a code and waits for the page.
func (b *tab) signIn(t *testing.T, path string) {
	t.Helper()
	b.visit(t, path)
	b.run(t, chromedp.SetValue("#code", b.code(t)), chromedp.Submit("#code"), chromedp.WaitReady(".shell #content"))
}

// visit opens a page and waits until its scripts have started.
func (b *tab) visit(t *testing.T, path string) {
	t.Helper()
	b.mu.Lock()
	b.bytes = 0
	b.mu.Unlock()
	b.run(t, chromedp.Navigate(b.ConsoleURL+b.path(path)), chromedp.WaitReady("#content"))
	b.await(t, "document.readyState === 'complete'")
}

// await waits until an expression is true in the page. The tab can load another page during the
// wait.
func (b *tab) await(t *testing.T, expression string) {
	t.Helper()
	err := kit.Until(t.Context(), pageLimit, expression, func() (bool, error) {
		found, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		return found && err == nil, nil
	})
	if err != nil {
		t.Fatalf("%v; the page:\n%s", err, b.text(t, "body"))
	}
}

// refreshRegions reads the live regions of the page again, as an event does.
func (b *tab) refreshRegions(t *testing.T) {
	t.Helper()
	script[bool](t, b, `(async () => {
		const url = new URL("regions.js", document.querySelector("script[type=module]").src);
		const replaced = new Promise((done) => document.addEventListener("regions:replaced", done, { once: true }));
		(await import(url)).refreshRegions({ all: true });
		await replaced;
		return true;
	})()`)
}

// text returns the text of the element that the selector matches.
func (b *tab) text(t *testing.T, selector string) string {
	t.Helper()
	return script[string](t, b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// look is a color scheme and a window size in which a page is shown.
type look struct {
	name          string
	scheme        string // prefers-color-scheme
	width, height int64
}

var looks = []look{
	{name: "light", scheme: "light", width: 1440, height: 900},
	{name: "dark", scheme: "dark", width: 1440, height: 900},
	{name: "phone", scheme: "light", width: 360, height: 780},
}

// checkPage opens a page as the local operator. It checks the accessibility with axe-core (light,
// dark, and 360 px wide), that no script fails, that the content security policy refuses nothing,
// that no request goes to another host, and that nothing is wider than the window. It writes a
// screenshot of each look into RINGFENCE_SCREENSHOTS. The page is loaded once.
func checkPage(t *testing.T, name, path string) {
	t.Helper()
	b := operatorTab(t)
	b.check(t, name, path)
}

// check does what checkPage does, in the given tab. It carries out the actions in ready after the
// page is loaded.
func (b *tab) check(t *testing.T, name, path string, ready ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	for i, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			b.run(t, chromedp.EmulateViewport(l.width, l.height))
			command(t, b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: l.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
			if i == 0 {
				b.visit(t, path)
				script[int](t, b, axe+";0")
				b.run(t, ready...)
			}
			b.screenshot(t, name+"-"+l.name)
			for _, fault := range b.axe(t) {
				t.Error(fault)
			}
			if wide := script[int](
				t,
				b,
				"document.documentElement.scrollWidth - document.documentElement.clientWidth",
			); wide > 0 {
				t.Errorf("the page is %d px wider than the window", wide)
			}
		})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		t.Error(fault)
	}
}

// axe returns the violations of WCAG 2.2 AA in the page.
func (b *tab) axe(t *testing.T) (faults []string) {
	t.Helper()
	result := script[string](
		t,
		b,
		`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]})
		.then((r) => JSON.stringify(r.violations))`,
	)
	var violations []struct {
		ID, Help string
		Nodes    []struct {
			HTML           string
			FailureSummary string
		}
	}
	if err := json.Unmarshal([]byte(result), &violations); err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		for _, n := range v.Nodes {
			faults = append(faults, fmt.Sprintf("axe %s: %s: %s\n%s", v.ID, v.Help, n.HTML, n.FailureSummary))
		}
	}
	return faults
}

// screenshot writes the whole page into the folder RINGFENCE_SCREENSHOTS, if it is set.
func (b *tab) screenshot(t *testing.T, name string) {
	t.Helper()
	folder := os.Getenv("RINGFENCE_SCREENSHOTS")
	if folder == "" {
		return
	}
	b.await(t, `document.readyState === "complete" && document.documentElement.clientWidth > 0`)
	image := value(t, b, chromedp.FullScreenshot(100))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), image, 0o600); err != nil {
		t.Fatal(err)
	}
}
