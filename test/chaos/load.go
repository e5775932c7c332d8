package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"ringfence.dev/libs/money"
	"ringfence.dev/test/kit"
)

const (
	again = 300 * time.Millisecond
	// answerTimeout is how long a client repeats a request. If no response arrives in this time,
	// the run reports an error.
	answerTimeout = 2 * time.Minute
	// optOutDelay is the time after the response to an opt-out in which a dial is still permitted
	// (docs/reference/api/compliance.md).
	optOutDelay = 2 * time.Second
	// maxOpen limits the number of concurrent operations of the clients.
	maxOpen = 128
)

type order struct {
	tenant *tenant
	// key is the idempotency key. An order without a key is sent only once.
	name, key, to string
	due           time.Time // the zero value means immediately

	mu               sync.Mutex
	id               string
	made             int // the number of responses with status 202
	cancelStatus     int
	cancelUnanswered bool // true if the cancel had no response
}

func newOrder(t *tenant, name, to string) *order {
	return &order{tenant: t, name: name, key: name, to: to}
}

// span is a period in which a number must not be dialed. A zero time means that the period has no
// start or no end.
type span struct{ from, until time.Time }

type load struct {
	w     *testStack
	rng   *rand.Rand
	hands chan struct{}
	wg    sync.WaitGroup

	mu     sync.Mutex
	orders []*order
	// forbiddenSpans maps each number to the periods in which no call may be dialed because of an
	// opt-out.
	forbiddenSpans map[string][]span
	answers        map[string]map[int]int // operation → status → number of responses; status 0 means no response
	wrongResponses []string
	serial         int
	missed         int
}

func newLoad(w *testStack) *load {
	return &load{
		w: w, rng: rand.New(rand.NewPCG(w.seed, 6)), hands: make(chan struct{}, maxOpen),
		forbiddenSpans: map[string][]span{}, answers: map[string]map[int]int{},
	}
}

// After ctx has ended, run waits for the open operations.
func (l *load) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / time.Duration(l.w.rate))
	defer tick.Stop()
	defer l.wg.Wait()
	for _, t := range l.w.tenants {
		l.wg.Go(func() { l.topUpRepeatedly(ctx, t) })
		if t.pausesWebhooks {
			l.wg.Go(func() { l.pauseRepeatedly(ctx, t) })
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		operation := l.drawOperation()
		select {
		case l.hands <- struct{}{}:
		default:
			l.missed++
			continue
		}
		l.wg.Go(func() {
			defer func() { <-l.hands }()
			operation(context.WithoutCancel(ctx))
		})
	}
}

// drawOperation returns a random operation. It is not safe for concurrent use.
func (l *load) drawOperation() func(context.Context) {
	chance, later := l.rng.Float64(), time.Duration(l.rng.IntN(12_000))*time.Millisecond
	pause := time.Duration(l.rng.IntN(120)) * time.Millisecond
	o := l.orderToNewNumber()
	switch {
	case chance < 0.42:
		return func(ctx context.Context) { l.place(ctx, o) }
	case chance < 0.52:
		o.key = ""
		return func(ctx context.Context) { l.place(ctx, o) }
	case chance < 0.66:
		o.due = time.Now().Add(2*time.Second + later)
		return func(ctx context.Context) { l.place(ctx, o) }
	case chance < 0.76:
		if earlier := l.earlierOrder(); earlier != nil {
			return func(ctx context.Context) { l.place(ctx, earlier) }
		}
		return func(ctx context.Context) { l.place(ctx, o) }
	case chance < 0.86:
		return func(ctx context.Context) { l.placeAndCancel(ctx, o, pause) }
	case chance < 0.94: // the cancel is sent when the call becomes due
		o.due = time.Now().Add(1500 * time.Millisecond)
		return func(ctx context.Context) { l.placeAndCancel(ctx, o, pause-60*time.Millisecond) }
	case chance < 0.98:
		o.to = o.to[:len(o.to)-2] + "07" // at this number, a person talks and does not opt out
		return func(ctx context.Context) { l.optOutAndBack(ctx, o, later/4) }
	}
	return func(ctx context.Context) { l.read(ctx, o.tenant) }
}

// orderToNewNumber returns an order to a new number. The last two digits select the behavior of the
// phone. Half of the orders have digits from 90 to 99.
func (l *load) orderToNewNumber() *order {
	l.serial++
	digits := l.rng.IntN(90)
	if l.rng.IntN(2) == 0 {
		digits = 90 + l.rng.IntN(10)
	}
	whose := l.w.tenants[0]
	switch pick := l.rng.IntN(20); {
	case pick < 6:
		whose = l.w.tenants[1]
	case pick < 9:
		whose = l.w.tenants[2]
	}
	return newOrder(whose, fmt.Sprintf("order-%d", l.serial), fmt.Sprintf("+1415%05d%02d", l.serial, digits))
}

// earlierOrder returns one of the latest orders with a key. The response to this order can still be
// missing.
func (l *load) earlierOrder() *order {
	l.mu.Lock()
	defer l.mu.Unlock()
	latest := l.orders[max(0, len(l.orders)-40):]
	if len(latest) == 0 {
		return nil
	}
	if o := latest[l.rng.IntN(len(latest))]; o.key != "" {
		return o
	}
	return nil
}

// sendOnce sends a request once and counts the status of the response. Status 0 means no response.
func (l *load) sendOnce(ctx context.Context, operation string, client *kit.Client, method, path string,
	body any) (status int, answer []byte) {
	status, answer, err := client.Do(ctx, method, path, body)
	if err != nil {
		status = 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers[operation] == nil {
		l.answers[operation] = map[int]int{}
	}
	l.answers[operation][status]++
	return status, answer
}

// sendUntilDone repeats a request until it succeeds or is refused.
func (l *load) sendUntilDone(ctx context.Context, operation string, client *kit.Client, method, path string,
	body any) (status int, answer []byte) {
	for begun := time.Now(); time.Since(begun) < answerTimeout; sleep(ctx, again) {
		if status, answer = l.sendOnce(ctx, operation, client, method, path, body); status != 0 && status != 503 {
			return status, answer
		}
	}
	l.reportWrongResponse("%s %s was not answered within %s: %d %s", method, path, answerTimeout, status, answer)
	return 0, nil
}

func (l *load) reportWrongResponse(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrongResponses = append(l.wrongResponses, fmt.Sprintf(format, args...))
}

// place repeats an order with a key until a response arrives. A second call of place for the same
// order is a retry with the same key. Concurrent calls are permitted.
func (l *load) place(ctx context.Context, o *order) (status int) {
	l.mu.Lock()
	if !slices.Contains(l.orders[max(0, len(l.orders)-200):], o) {
		l.orders = append(l.orders, o)
	}
	l.mu.Unlock()
	body := map[string]any{"agent_id": o.tenant.AgentID, "to": o.to, "external_ref": o.name}
	if !o.due.IsZero() {
		body["scheduled_for"] = o.due.UTC().Format(time.RFC3339Nano)
	}
	var answer []byte
	if o.key == "" {
		status, answer = l.sendOnce(ctx, "POST without a key", o.tenant.API, "POST", "/v1/calls", body)
	} else {
		body["idempotency_key"] = o.key
		status, answer = l.sendUntilDone(ctx, "POST with a key", o.tenant.API, "POST", "/v1/calls", body)
	}
	var req kit.Request
	_ = json.Unmarshal(answer, &req)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case status == 202 || status == 200 && o.key != "":
		if status == 202 {
			o.made++
		}
		if req.ID == "" || o.id != "" && o.id != req.ID || o.made > 1 {
			l.reportWrongResponse(
				"the key %s of workspace %s made %d requests, %s and %s",
				o.key,
				o.tenant.name,
				o.made,
				o.id,
				req.ID,
			)
		}
		o.id = req.ID
	// these responses are permitted: the call request was refused, or it is unknown whether it
	// exists
	case status == 402 && o.tenant.hasLittleCredit, status == 503, status == 0:
	case status == 422 && l.isShut(o):
	default:
		l.reportWrongResponse("POST /v1/calls to %s of workspace %s: %d %s", o.to, o.tenant.name, status, answer)
	}
	return status
}

func (o *order) accepted() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.id
}

// placeAndCancel places a call and cancels the call. The delay before the cancel begins when the
// call is accepted or becomes due.
func (l *load) placeAndCancel(ctx context.Context, o *order, after time.Duration) {
	l.place(ctx, o)
	id := o.accepted()
	if id == "" {
		return
	}
	if !o.due.IsZero() {
		after += time.Until(o.due)
	}
	sleep(ctx, after)
	for range 3 {
		status, answer := l.sendOnce(ctx, "cancel", o.tenant.API, "POST", "/v1/call-requests/"+id+"/cancel", nil)
		o.mu.Lock()
		o.cancelStatus = status
		o.cancelUnanswered = o.cancelUnanswered || status == 0 || status == 503
		o.mu.Unlock()
		switch status {
		case 200, 409:
			return
		case 0, 503:
			sleep(ctx, again)
		default:
			l.reportWrongResponse("cancel of %s: %d %s", id, status, answer)
			return
		}
	}
}

func (o *order) number() string { return o.tenant.ID + " " + o.to }

func (l *load) isShut(o *order) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.forbiddenSpans[o.number()]) > 0
}

func (l *load) optOutAndBack(ctx context.Context, o *order, later time.Duration) {
	o.due = time.Now().Add(optOutDelay + 500*time.Millisecond + later)
	l.place(ctx, o)
	if status, answer := l.sendUntilDone(ctx, "opt-out", o.tenant.API, "POST", "/v1/opt-outs",
		map[string]any{"phone_e164": o.to}); status != 200 {
		l.reportWrongResponse("opt-out of %s: %d %s", o.to, status, answer)
		return
	}
	l.mu.Lock()
	l.forbiddenSpans[o.number()] = append(l.forbiddenSpans[o.number()], span{from: time.Now().Add(optOutDelay)})
	l.mu.Unlock()
	refused := newOrder(o.tenant, o.name+"-refused", o.to)
	if status := l.place(ctx, refused); status == 202 {
		l.reportWrongResponse("request %s for %s was accepted after its opt-out was answered", refused.accepted(), o.to)
	}
	sleep(ctx, time.Until(o.due)+time.Second)
	l.mu.Lock()
	l.forbiddenSpans[o.number()][0].until = time.Now()
	l.mu.Unlock()
	if status, answer := l.sendUntilDone(ctx, "re-grant", o.tenant.API, "DELETE", "/v1/opt-outs/"+o.to,
		nil); status != 200 {
		l.reportWrongResponse("end of the opt-out of %s: %d %s", o.to, status, answer)
		return
	}
	if status := l.place(ctx, newOrder(o.tenant, o.name+"-granted", o.to)); status == 422 {
		l.reportWrongResponse("a call to %s was refused after its opt-out was removed", o.to)
	}
}

func (l *load) read(ctx context.Context, t *tenant) {
	for _, path := range []string{"/v1/calls?limit=20", "/v1/wallet", "/v1/webhook-subscriptions"} {
		if status, answer := l.sendOnce(ctx, "GET", t.API, "GET", path, nil); status != 200 && status != 503 && status != 0 {
			l.reportWrongResponse("GET %s: %d %s", path, status, answer)
		}
	}
}

// topUpRepeatedly tops up the wallet from time to time. Each top-up is sent twice with the same
// reference.
func (l *load) topUpRepeatedly(ctx context.Context, t *tenant) {
	amount := 10 * money.Credit
	if t.hasLittleCredit {
		amount = money.Credit / 100
	}
	for n := 0; sleep(ctx, 8*time.Second); n++ {
		body := map[string]any{"type": "top_up", "amount": amount.String(), "reference": fmt.Sprintf("payment-%d", n)}
		whole := context.WithoutCancel(ctx)
		for range 2 {
			path := "/admin/v1/workspaces/" + t.ID + "/wallet/transactions"
			if status, answer := l.sendUntilDone(whole, "top-up", t.Admin, "POST", path, body); status != 201 && status != 200 {
				l.reportWrongResponse("top-up of workspace %s: %d %s", t.name, status, answer)
			}
		}
		t.paidIn(amount)
	}
}

// pauseRepeatedly pauses the tenant's subscription from time to time.
func (l *load) pauseRepeatedly(ctx context.Context, t *tenant) {
	path := "/v1/webhook-subscriptions/" + t.subscription
	for sleep(ctx, 6*time.Second) {
		for _, status := range []string{"paused", "active"} {
			if code, answer := l.sendUntilDone(context.WithoutCancel(ctx), "pause, resume", t.API, "PATCH", path,
				map[string]any{"status": status}); code != 200 {
				l.reportWrongResponse("PATCH of a subscription to %s: %d %s", status, code, answer)
			}
			if status == "paused" {
				sleep(ctx, 2500*time.Millisecond)
			}
		}
	}
}
