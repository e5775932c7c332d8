package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	// goalPages limits the page time of a list with the large history. It is a multiple of the page
	// time with the small history.
	goalPages = 1.5
	// goalPaint limits the time, in ms, until the largest part of a page is painted. The goal applies
	// to a machine with two idle cores.
	goalPaint     = 1000.0
	consolePages  = 60 // requests of each list
	consolePaints = 7  // times that a browser loads each list
	consoleCalls  = 30 // calls that the page Live shows
)

// consoleSession is an operator who is signed in to the console.
type consoleSession struct {
	client *http.Client
	base   *url.URL
}

// measureConsole measures the lists of the console in a database with a million calls. It also
// measures how soon the page Live shows an event.
func measureConsole(ctx context.Context, b *bench) error {
	session, err := b.signIn(ctx)
	if err != nil {
		return err
	}
	largeHistory, smallHistory, err := b.histories(ctx)
	if err != nil {
		return err
	}
	for _, list := range []string{"calls", "call-requests"} {
		if err := session.compareLists(ctx, list, smallHistory, largeHistory); err != nil {
			return err
		}
	}
	tab, closeTab, err := session.openTab(ctx)
	if errors.Is(err, exec.ErrNotFound) {
		fmt.Println("  SKIPPED: the other figures need Chromium: apt-get install chromium")
		return nil
	}
	if err != nil {
		return err
	}
	defer closeTab()
	// The requests above can have used up the session's rate limit per minute.
	if err := rest(ctx, time.Minute); err != nil {
		return err
	}
	if err := session.measurePaint(tab, largeHistory); err != nil {
		return err
	}
	return session.measureLive(ctx, tab, b)
}

var printedCode = regexp.MustCompile(`(?m)^[A-Z2-7]{4}-[A-Z2-7]{4}-[A-Z2-7]{4}$`)

// signIn signs in with a code of the local stack.
func (b *bench) signIn(ctx context.Context) (*consoleSession, error) {
	program := exec.CommandContext(ctx, filepath.Join(b.bin, "ringfence-local"), "service", "gateway", "sign-in-code")
	program.Env = append(os.Environ(), "RINGFENCE_HOME="+b.home, "POSTGRES_URL="+b.db, "RINGFENCE_BROKER="+b.on)
	printed, err := program.CombinedOutput()
	code := printedCode.Find(printed)
	if err != nil || code == nil {
		return nil, fmt.Errorf("sign-in-code printed %q: %w", printed, err)
	}
	base, err := url.Parse(b.stack.Demo.ConsoleURL)
	if err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	s := &consoleSession{base: base, client: &http.Client{Jar: jar, Transport: &http.Transport{Proxy: nil}}}
	response, err := s.client.PostForm(base.JoinPath("sign-in", "code").String(), url.Values{"code": {string(code)}})
	if err != nil {
		return nil, err
	}
	_ = response.Body.Close()
	if len(jar.Cookies(base)) == 0 {
		return nil, fmt.Errorf("the sign-in responded %s and set no cookie", response.Status)
	}
	return s, nil
}

func (s *consoleSession) page(h *history, list string) string {
	return s.base.JoinPath("w", h.ID, list).String()
}

// compareLists requests a list of the small history and of the large history alternately, so that
// both have the same background load.
func (s *consoleSession) compareLists(ctx context.Context, list string, smallHistory, largeHistory *history) error {
	var took [2][]time.Duration
	for i := range consolePages + warmUp {
		for side, h := range []*history{smallHistory, largeHistory} {
			spent, err := s.load(ctx, s.page(h, list))
			if err != nil {
				return err
			}
			if i >= warmUp {
				took[side] = append(took[side], spent)
			}
		}
	}
	ratio := float64(probe.Quantile(took[1], 0.5)) / float64(probe.Quantile(took[0], 0.5))
	fmt.Printf("  page %-14s  1000 calls %s; 1000000 calls %s; p50 %.2f x   %s\n", list, probe.Spread(took[0]),
		probe.Spread(took[1]), ratio, probe.AtMost(ratio, goalPages, "x"))
	return nil
}

// load requests a page and returns the time until its last byte. If the session has reached its
// rate limit, it waits and requests the page again.
func (s *consoleSession) load(ctx context.Context, address string) (time.Duration, error) {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return 0, err
		}
		began := time.Now()
		response, err := s.client.Do(request)
		if err != nil {
			return 0, err
		}
		body, err := io.ReadAll(response.Body)
		took := time.Since(began)
		_ = response.Body.Close()
		switch {
		case err != nil:
			return 0, err
		case response.StatusCode == http.StatusOK:
			return took, nil
		case response.StatusCode != http.StatusTooManyRequests:
			return 0, fmt.Errorf("GET %s: %s %.200s", address, response.Status, body)
		}
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err != nil {
			return 0, fmt.Errorf("GET %s: Retry-After is not a number: %w", address, err)
		}
		if err := rest(ctx, time.Duration(seconds)*time.Second); err != nil {
			return 0, err
		}
	}
}

// openTab opens a tab of Chromium with the session. The error is exec.ErrNotFound if Chromium is
// not installed.
func (s *consoleSession) openTab(ctx context.Context) (tab context.Context, closeTab func(), err error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, exec.ErrNotFound
	}
	allocator, stop := chromedp.NewExecAllocator(ctx, chromedp.ExecPath(path), chromedp.Headless, chromedp.DisableGPU,
		chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.Flag("disable-dev-shm-usage", true))
	tab, cancel := chromedp.NewContext(allocator)
	closeTab = func() { cancel(); stop() }
	err = chromedp.Do(tab, chromedp.Navigate("about:blank"), chromedp.EmulateViewport(1440, 900))
	httpOnly := true
	for _, c := range s.client.Jar.Cookies(s.base) {
		if err == nil {
			_, err = chromedp.Call(tab, network.SetCookie, network.SetCookieParams{Name: c.Name, Value: c.Value,
				URL: s.base.String(), HTTPOnly: &httpOnly})
		}
	}
	if err != nil {
		closeTab()
		return nil, nil, err
	}
	return tab, closeTab, nil
}

// largestPaint is the time in milliseconds from the start of a page load until its largest part was
// painted.
const largestPaint = `new Promise((done) => new PerformanceObserver((list) => done(list.getEntries().at(-1).startTime))
	.observe({ type: "largest-contentful-paint", buffered: true }))`

func (s *consoleSession) measurePaint(tab context.Context, largeHistory *history) error {
	var took []time.Duration
	for range consolePaints {
		list := s.page(largeHistory, "calls")
		if err := chromedp.Do(tab, chromedp.Navigate(list), chromedp.WaitReady("#results")); err != nil {
			return err
		}
		ms, err := chromedp.Run(tab, chromedp.Evaluate[float64](largestPaint, chromedp.EvalAwaitPromise))
		if err != nil {
			return err
		}
		took = append(took, time.Duration(ms*float64(time.Millisecond)))
	}
	at := probe.MS(probe.Quantile(took, 0.5))
	fmt.Printf("  largest contentful paint of calls, %d loads: %s   %s\n", len(took), probe.Spread(took),
		probe.AtMost(at, goalPaint, " ms"))
	return nil
}

// noteEnded stores the time at which the page shows each call that ended.
const noteEnded = `(() => {
	window.shown = {};
	const note = () => {
		for (const item of document.querySelectorAll("#ended li[id]")) shown[item.id.slice("ended-".length)] ??= Date.now();
	};
	new MutationObserver(note).observe(document.body, { subtree: true, childList: true });
	return true;
})()`

// terminalEvents contains two times for each call: when its terminal event was stored, and when a
// stream received the event.
type terminalEvents struct {
	mu       sync.Mutex
	received map[string]time.Time // by call id
	events   map[string]uuid.UUID // by call id
}

func (e *terminalEvents) receive(event openapi.StreamedEvent) error {
	now := time.Now()
	var body struct {
		Data struct {
			CallID string `json:"call_id"`
		} `json:"data"`
	}
	switch event.Type {
	case "call.completed", "call.failed", "call.no_answer", "call.busy":
	default:
		return nil
	}
	if err := json.Unmarshal(event.Data, &body); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.received[body.Data.CallID]; !known {
		e.received[body.Data.CallID], e.events[body.Data.CallID] = now, event.ID
	}
	return nil
}

// measureLive places calls one after the other. It measures how long after its commit a terminal
// event arrives at the page Live and at a stream of the API.
func (s *consoleSession) measureLive(ctx context.Context, tab context.Context, b *bench) error {
	w, err := b.stack.NewWorkspace(ctx, "bench console", "1000")
	if err != nil {
		return err
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := openapi.NewClient(b.stack.Demo.BaseURL,
		openapi.WithHTTPClient(&http.Client{Transport: &http.Transport{Proxy: nil}}),
		openapi.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+w.WriteKey)
			return nil
		}))
	if err != nil {
		return err
	}
	events := &terminalEvents{received: map[string]time.Time{}, events: map[string]uuid.UUID{}}
	var stream sync.WaitGroup
	stream.Go(func() { _ = openapi.FollowEvents(within, client, openapi.StreamEventsParams{}, events.receive) })
	defer func() { cancel(); stream.Wait() }()

	if err := chromedp.Do(tab, chromedp.Navigate(s.base.JoinPath("w", w.ID, "live").String()),
		chromedp.WaitReady(`[data-connection][data-state="open"]`)); err != nil {
		return err
	}
	if _, err := chromedp.Run(tab, chromedp.Evaluate[bool](noteEnded)); err != nil {
		return err
	}
	shown := map[string]float64{}
	for i := range consoleCalls {
		if _, err := w.Place(ctx, map[string]any{"to": phoneNumber(int64(i))}); err != nil {
			return err
		}
		err := kit.Until(ctx, time.Minute, "the page and the stream have the call", func() (bool, error) {
			found, err := chromedp.Run(tab, chromedp.Evaluate[map[string]float64]("window.shown"))
			events.mu.Lock()
			defer events.mu.Unlock()
			shown = found
			return len(found) == i+1 && len(events.received) == i+1, err
		})
		if err != nil {
			return err
		}
	}
	stored, err := b.storedTimes(ctx, w.ID)
	if err != nil {
		return err
	}
	var toPage, toStream []time.Duration
	for call, event := range events.events {
		toPage = append(toPage, time.UnixMilli(int64(shown[call])).Sub(stored[event]))
		toStream = append(toStream, events.received[call].Sub(stored[event]))
	}
	if len(toPage) == 0 {
		return errNothing
	}
	fmt.Printf("  stored → stream of the API     %s (%d calls)\n", probe.Spread(toStream), len(toStream))
	fmt.Printf("  stored → page Live             %s\n", probe.Spread(toPage))
	fmt.Printf("    p50 of the page              %.1f x, %.0f ms later; a page changes at most 4 times a second\n",
		float64(probe.Quantile(toPage, 0.5))/float64(probe.Quantile(toStream, 0.5)),
		probe.MS(probe.Quantile(toPage, 0.5)-probe.Quantile(toStream, 0.5)))
	return nil
}

// storedTimes returns the times at which the events of a workspace were stored.
func (b *bench) storedTimes(ctx context.Context, workspace string) (map[uuid.UUID]time.Time, error) {
	db, err := pgx.Connect(ctx, b.db)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close(context.Background()) }()
	rows, err := db.Query(ctx, storedEvents, workspace)
	if err != nil {
		return nil, err
	}
	stored := map[uuid.UUID]time.Time{}
	var id uuid.UUID
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error { stored[id] = at; return nil })
	return stored, err
}
