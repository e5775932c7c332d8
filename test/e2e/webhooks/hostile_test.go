package webhooks_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"

	"ringfence.dev/test/kit/sharedstack"
)

type wanted struct {
	status   string
	attempts int
	code     int    // the status of every attempt; 0 means no response
	failure  string // the failure of every attempt; "" means success
	requests int
	// minDelays contains the minimum delays between requests. Nil means the delays of the schedule.
	minDelays []time.Duration
}

func delivered(code int) wanted {
	return wanted{status: "delivered", attempts: 1, code: code, requests: 1}
}

func exhausted(code int, failure string) wanted {
	return wanted{status: "failed", attempts: 5, code: code, failure: failure, requests: 5}
}

// wantNoRequest returns the expected result of attempts that fail before the receiver gets an HTTP
// request.
func wantNoRequest(failure string) wanted {
	w := exhausted(0, failure)
	w.requests = 0
	return w
}

// withLeast replaces the minimum delays, for a receiver that sends Retry-After.
func (w wanted) withLeast(least ...time.Duration) wanted {
	w.minDelays = least
	return w
}

// scheduledDelays returns the minimum delays of the retry schedule: 10 % less than the configured
// delays.
func scheduledDelays() (least []time.Duration) {
	for _, d := range retryDelays() {
		least = append(least, max(retryDelays()[0], d*9/10))
	}
	return least
}

type row struct {
	name        string
	certificate string
	behave      func(link)
	want        wanted
	// events is the number of events. The zero value means one event.
	events int
}

func says(text string) func(link) { return func(l link) { l.say("%s", text) } }

func status(code int, headers ...string) func(link) {
	text := fmt.Sprintf("HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: 0\r\n", code, http.StatusText(code))
	if code == http.StatusNoContent {
		text = "HTTP/1.1 204 No Content\r\nConnection: close\r\n"
	}
	return says(text + strings.Join(headers, "") + "\r\n")
}

func retryAfter(code int, value string) func(link) {
	return status(code, "Retry-After: "+value+"\r\n")
}

// sendEndlessly sends a head, and then the same bytes again and again until the sender closes the
// connection.
func sendEndlessly(head string, piece []byte) func(link) {
	return func(l link) {
		l.say("%s", head)
		for {
			if _, err := l.Write(piece); err != nil {
				return
			}
		}
	}
}

func slow() []row {
	drip := func(l link) {
		l.say("HTTP/1.1 200 OK\r\nX-Slow: ")
		for l.wait(time.Second) {
			l.say("x")
		}
	}
	return []row{
		{name: "responds after the timeout", behave: func(l link) {
			if l.wait(attemptTimeout + time.Second) {
				l.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		}, want: exhausted(0, "timeout")},
		{name: "never responds", behave: func(l link) { l.wait(time.Hour) }, want: exhausted(0, "timeout")},
		{name: "sends one byte of the header per second", behave: drip, want: exhausted(0, "timeout")},
		{name: "sends 200 and no body", behave: func(l link) {
			l.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
			l.wait(time.Hour)
		}, want: delivered(200)},
	}
}

func large(t *testing.T) []row {
	t.Helper()
	const ok = "HTTP/1.1 200 OK\r\nConnection: close\r\n"
	zeros, bomb := make([]byte, 64<<10), &bytes.Buffer{}
	zip := gzip.NewWriter(bomb)
	for range 1 << 10 { // 64 MiB in pieces of 64 KiB
		_, _ = zip.Write(zeros)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	zipped := fmt.Sprintf("%sContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", ok, bomb.Len(), bomb)
	huge := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", ok, 1<<20, strings.Repeat("x", 1<<20))
	return []row{
		{name: "sends an endless body", behave: sendEndlessly(ok+"\r\n", zeros), want: delivered(200), events: 40},
		{name: "sends an endless body with status 500",
			behave: sendEndlessly("HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n", zeros), want: exhausted(500, "http_status")},
		{name: "sends a body of 1 MiB", behave: says(huge), want: delivered(200), events: 40},
		{name: "sends a gzip bomb", behave: says(zipped), want: delivered(200), events: 40},
		{name: "sends an endless header", behave: sendEndlessly("HTTP/1.1 200 OK\r\nX-Endless: ",
			bytes.Repeat([]byte("x"), 1<<10)),
			want: exhausted(0, "invalid_answer")},
	}
}

func broken() []row {
	return []row{
		{name: "resets the connection after the request", behave: func(l link) {
			_ = l.tcp.SetLinger(0)
			_ = l.tcp.Close()
		}, want: exhausted(0, "connection_failed")},
		{name: "closes the connection before the response", behave: func(l link) { _ = l.Close() },
			want: exhausted(0, "connection_failed")},
		{name: "switches protocols and sends no more", behave: func(l link) {
			l.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: silence\r\n\r\n")
			l.wait(time.Hour)
		}, want: exhausted(101, "http_status")},
		{name: "does not use HTTP", behave: says("220 mail.example.com ESMTP\r\n"), want: exhausted(0, "invalid_answer")},
		{name: "has a certificate of another host", certificate: "another host's", want: wantNoRequest("tls_failed")},
		{name: "has a self-signed certificate", certificate: "self-signed", want: wantNoRequest("tls_failed")},
		{name: "has an expired certificate", certificate: "expired", want: wantNoRequest("tls_failed")},
	}
}

// validResponses returns receivers with valid HTTP responses. elsewhere is the target of redirects.
func validResponses(elsewhere string) (rows []row) {
	for _, code := range []int{200, 204, 299} {
		rows = append(rows, row{name: fmt.Sprintf("answers %d", code), behave: status(code), want: delivered(code)})
	}
	for _, code := range []int{300, 304, 400, 410, 500} {
		rows = append(rows, row{name: fmt.Sprintf("answers %d", code), behave: status(code), want: exhausted(code, "http_status")})
	}
	for _, code := range []int{301, 302, 303, 307, 308} {
		rows = append(rows, row{name: fmt.Sprintf("redirects with %d", code), behave: status(code, "Location: "+elsewhere+"\r\n"), want: exhausted(code, "http_status")})
	}
	second, most := time.Second, retryDelays()[3]
	for _, code := range []int{429, 503} {
		failed := exhausted(code, "http_status")
		rows = append(rows,
			row{name: fmt.Sprintf("answers %d and asks for nothing", code), behave: status(code), want: failed},
			row{name: fmt.Sprintf("answers %d and asks for a second", code), behave: retryAfter(code, "1"),
				want: failed.withLeast(second, second, second, most*9/10)},
			row{name: fmt.Sprintf("answers %d and asks for an hour", code), behave: retryAfter(code, "3600"),
				want: failed.withLeast(most, most, most, most)},
			row{name: fmt.Sprintf("answers %d and names a time", code), behave: func(l link) {
				retryAfter(code, time.Now().Add(2*time.Second).UTC().Format(http.TimeFormat))(l)
			}, want: failed.withLeast(second, second, second, most*9/10)},
			row{name: fmt.Sprintf("answers %d and names a time that is over", code), behave: retryAfter(code, "Thu, 04 Jun 2026 12:00:00 GMT"), want: failed},
			row{name: fmt.Sprintf("answers %d and asks for less than nothing", code), behave: retryAfter(code, "-5"), want: failed},
			row{name: fmt.Sprintf("answers %d and asks for soon", code), behave: retryAfter(code, "soon"), want: failed},
		)
	}
	return append(rows,
		row{name: "responds with 500 and a Retry-After that is ignored", behave: retryAfter(500, "3600"),
			want: exhausted(500, "http_status")})
}

type attacked struct {
	row
	*hostileReceiver
	*customer
	events []event
}

func TestHostileReceivers_DoNotAffectOtherReceivers(t *testing.T) {
	w := stack(t)
	elsewhere := w.receive(t)
	rows := slices.Concat(slow(), large(t), broken(), validResponses(elsewhere.URL))
	all := make([]attacked, len(rows))
	for i, r := range rows {
		receiver := w.listen(t, r.certificate, r.behave)
		all[i] = attacked{row: r, hostileReceiver: receiver, customer: w.customer(t, receiver.URL)}
		all[i].events = terminalEvents(t, all[i].ID, max(1, r.events))
	}
	away := w.customer(t, unusedAddress(t))
	silent := terminalEvents(t, away.ID, 1)

	watch, stop := context.WithCancel(t.Context())
	defer stop()
	var beside sync.WaitGroup
	healthy := w.receive(t)
	publishedAt := map[string]time.Time{}
	beside.Go(func() { w.publishSteadily(watch, t, w.customer(t, healthy.URL), publishedAt) })
	var heap float64
	beside.Go(func() { heap = w.watchHeap(watch) })

	w.publish(t, silent...)
	for _, a := range all {
		w.publish(t, a.events...)
	}
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) { a.judge(t) })
	}
	t.Run("does not listen", func(t *testing.T) {
		a := attacked{row: row{want: wantNoRequest("connection_failed")}, hostileReceiver: &hostileReceiver{},
			customer: away, events: silent}
		a.judge(t)
	})
	stop()
	beside.Wait()
	if got, want := len(healthy.all()), len(publishedAt)/2; got < want {
		t.Errorf("events at the healthy endpoint while the hostile ones were tried = %d, want at least %d of %d",
			got, want, len(publishedAt))
	}
	if got := elsewhere.all(); len(got) != 0 {
		t.Errorf("%d requests followed a redirect", len(got))
	}
	if t.Logf("at most %.1f MiB of heap in use", heap/(1<<20)); heap == 0 {
		t.Errorf("heap in use: heap = 0, want more; heap/(1<<20) = %.1f", heap/(1<<20))
	} else if heap > 150<<20 {
		t.Errorf("heap in use: heap = %v, want at most %v; heap/(1<<20) = %.1f", heap, 150<<20, heap/(1<<20))
	}
	judgeHealthy(t, healthy, publishedAt)
	until(t, "no request to a hostile receiver is open",
		func() bool { return w.metrics(t, "ringfence_webhooks_requests_in_flight") == 0 })
}

func (a attacked) judge(t *testing.T) {
	for _, ev := range a.events {
		got := a.awaitDelivery(t, ev.id, a.want.status)
		if got.Attempts != a.want.attempts {
			t.Errorf("got.Attempts = %v, want %v", got.Attempts, a.want.attempts)
		} else if len(got.History) != a.want.attempts {
			t.Errorf("length of got.History = %d, want %d", len(got.History), a.want.attempts)
		}
		for i, one := range got.History {
			sharedstack.Equal(t, "or(one.Code)", or(one.Code), a.want.code)
			sharedstack.Equal(t, "or(one.Error)", or(one.Error), a.want.failure)
			sharedstack.Equal(t, "one.Attempt", one.Attempt, i+1)
			if len(or(one.Excerpt)) > 4<<10 {
				t.Errorf("length of or(one.Excerpt) = %v, want at most %v", len(or(one.Excerpt)), 4<<10)
			}
		}
		if value := or(got.LastCode); value != a.want.code {
			t.Errorf("or(got.LastCode) = %v, want %v", value, a.want.code)
		} else if value := or(got.LastError); value != a.want.failure {
			t.Errorf("or(got.LastError) = %v, want %v", value, a.want.failure)
		}
		arrived := a.requestsFor(ev.id)
		if len(arrived) != a.want.requests {
			t.Fatalf("%d requests arrived, want %d", len(arrived), a.want.requests)
		}
		least := a.want.minDelays
		if least == nil {
			least = scheduledDelays()
		}
		judgeRequests(t, arrived, a.secret, least)
	}
	if got := a.shown(t); got.Status != "active" {
		t.Errorf("the subscription is %s after %d failures, want active", got.Status, got.ConsecutiveFailures)
	}
}

// judgeRequests compares the attempts of one delivery. They must be numbered from 1, have the same
// body and ids, be signed, and respect the minimum delays.
func judgeRequests(t *testing.T, arrived []request, secret string, least []time.Duration) {
	t.Helper()
	for i, r := range arrived {
		sharedstack.Equal(t, "r.attempt", r.attempt, i+1)
		sharedstack.Equal(t, "r.signedWith(secret)", r.signedWith(secret), true)
		sharedstack.Equal(t, "r.delivery", r.delivery, arrived[0].delivery)
		sharedstack.Equal(t, "r.body", string(r.body), string(arrived[0].body))
		if i == 0 {
			continue
		}
		if waited := r.at.Sub(arrived[i-1].at); waited < least[i-1] {
			t.Errorf("attempt %d came %s after the one before, want %s or more", i+1, waited, least[i-1])
		}
	}
}

// publishSteadily publishes an event every 50 ms until ctx ends. The map publishedAt contains the
// time of Kafka's acknowledgment for each event id.
func (w *testStack) publishSteadily(ctx context.Context, t *testing.T, c *customer, publishedAt map[string]time.Time) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ev := terminalEvents(t, c.ID, 1)[0]
			w.publish(t, ev)
			publishedAt[ev.id] = time.Now()
		}
	}
}

// The healthy endpoint must receive each event once, with the first attempt.
func judgeHealthy(t *testing.T, healthy *endpoint, publishedAt map[string]time.Time) {
	t.Helper()
	until(t, "the healthy endpoint has received every event",
		func() bool { return len(healthy.all()) >= len(publishedAt) })
	for _, r := range healthy.all() {
		if _, published := publishedAt[r.event]; !published {
			t.Errorf("event %s arrived, but was not published", r.event)
		}
		sharedstack.Equal(t, "attempt", r.attempt, 1)
		sharedstack.Equal(t, "requests of event "+r.event, len(healthy.requestsFor(r.event)), 1)
	}
}

func (w *testStack) watchHeap(ctx context.Context) (most float64) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		for replica := 1; replica <= replicas; replica++ {
			if used, err := w.metric(ctx, replica, "go_memstats_heap_inuse_bytes"); err == nil {
				most = max(most, used)
			}
		}
		select {
		case <-ctx.Done():
			return most
		case <-tick.C:
		}
	}
}

func unusedAddress(t *testing.T) string {
	t.Helper()
	port, err := testkit.Port() // Port reserves the port, so that no other program uses it
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("https://127.0.0.1:%d/", port)
}

func or[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
