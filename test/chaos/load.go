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

// A careful client asks again after a moment, for so long; then it complains.
const (
	again    = 300 * time.Millisecond
	patience = 2 * time.Minute
	// bound is how long after its answer an opt-out may still be overtaken by a dial (contract.md §3).
	bound = 2 * time.Second
	// mostOpen is how many things the clients do at once.
	mostOpen = 128
)

// order is a call that was asked for.
type order struct {
	tenant *tenant
	// name is the order's own; key is the same, or empty: without one it is asked for once.
	name, key, to string
	due           time.Time // zero: at once

	mu sync.Mutex
	// id is what was answered, made how often with 202; told is the status of the cancel; doubt that a cancel was not answered.
	id    string
	made  int
	told  int
	doubt bool
}

func newOrder(t *tenant, name, to string) *order {
	return &order{tenant: t, name: name, key: name, to: to}
}

// span is a stretch of time in which nobody may be dialled; zero is open.
type span struct{ from, until time.Time }

// load is what many clients do at a steady rate.
type load struct {
	w     *world
	rng   *rand.Rand
	hands chan struct{}
	wg    sync.WaitGroup

	mu     sync.Mutex
	orders []*order
	// shut are the spans of a workspace's number between an opt-out and its end.
	shut    map[string][]span
	answers map[string]map[int]int // deed → status → count; 0: none
	lies    []string
	serial  int
	missed  int
}

func newLoad(w *world) *load {
	return &load{
		w: w, rng: rand.New(rand.NewPCG(w.seed, 6)), hands: make(chan struct{}, mostOpen),
		shut: map[string][]span{}, answers: map[string]map[int]int{},
	}
}

// run works until ctx ends, then waits for what is open.
func (l *load) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / time.Duration(l.w.rate))
	defer tick.Stop()
	defer l.wg.Wait()
	for _, t := range l.w.tenants {
		l.wg.Go(func() { l.fund(ctx, t) })
		if t.resting {
			l.wg.Go(func() { l.nap(ctx, t) })
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		deed := l.draw()
		select {
		case l.hands <- struct{}{}:
		default:
			l.missed++
			continue
		}
		l.wg.Go(func() {
			defer func() { <-l.hands }()
			deed(context.WithoutCancel(ctx))
		})
	}
}

// draw decides what is done next; every chance is taken here, one after another.
func (l *load) draw() func(context.Context) {
	chance, later := l.rng.Float64(), time.Duration(l.rng.IntN(12_000))*time.Millisecond
	pause := time.Duration(l.rng.IntN(120)) * time.Millisecond
	o := l.next()
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
		if earlier := l.earlier(); earlier != nil {
			return func(ctx context.Context) { l.place(ctx, earlier) }
		}
		return func(ctx context.Context) { l.place(ctx, o) }
	case chance < 0.86:
		return func(ctx context.Context) { l.placeAndCancel(ctx, o, pause) }
	case chance < 0.94: // the cancel meets the instant at which the call falls due
		o.due = time.Now().Add(1500 * time.Millisecond)
		return func(ctx context.Context) { l.placeAndCancel(ctx, o, pause-60*time.Millisecond) }
	case chance < 0.98:
		o.to = o.to[:len(o.to)-2] + "07" // somebody who talks, and does not opt out
		return func(ctx context.Context) { l.optOutAndBack(ctx, o, later/4) }
	}
	return func(ctx context.Context) { l.read(ctx, o.tenant) }
}

// next is an order of somebody's to a number that nobody else calls; its last two digits say what will happen there, each of the special ones one time
// in twenty.
func (l *load) next() *order {
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

// earlier is one of the latest orders with a key, answered or not.
func (l *load) earlier() *order {
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

// ask sends one request and counts its answer; 0 is none.
func (l *load) ask(ctx context.Context, deed string, client *kit.Client, method, path string, body any) (status int, answer []byte) {
	status, answer, err := client.Do(ctx, method, path, body)
	if err != nil {
		status = 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers[deed] == nil {
		l.answers[deed] = map[int]int{}
	}
	l.answers[deed][status]++
	return status, answer
}

// insist asks until there is an answer that says yes or no.
func (l *load) insist(ctx context.Context, deed string, client *kit.Client, method, path string, body any) (status int, answer []byte) {
	for begun := time.Now(); time.Since(begun) < patience; rest(ctx, again) {
		if status, answer = l.ask(ctx, deed, client, method, path, body); status != 0 && status != 503 {
			return status, answer
		}
	}
	l.lie("%s %s was not answered within %s: %d %s", method, path, patience, status, answer)
	return 0, nil
}

func (l *load) lie(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lies = append(l.lies, fmt.Sprintf(format, args...))
}

// place asks for the call: with a key until it is answered, without one once. It may be called again, also while it runs: that is a repeat of the key.
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
		status, answer = l.ask(ctx, "POST without a key", o.tenant.API, "POST", "/v1/calls", body)
	} else {
		body["idempotency_key"] = o.key
		status, answer = l.insist(ctx, "POST with a key", o.tenant.API, "POST", "/v1/calls", body)
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
			l.lie("the key %s of workspace %s made %d requests, %s and %s", o.key, o.tenant.name, o.made, o.id, req.ID)
		}
		o.id = req.ID
	case status == 402 && o.tenant.poor, status == 503, status == 0: // refused, or nobody knows
	case status == 422 && l.isShut(o):
	default:
		l.lie("POST /v1/calls to %s of workspace %s: %d %s", o.to, o.tenant.name, status, answer)
	}
	return status
}

func (o *order) accepted() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.id
}

// placeAndCancel asks for a call and cancels it so long after it was accepted, or after it fell due.
func (l *load) placeAndCancel(ctx context.Context, o *order, after time.Duration) {
	l.place(ctx, o)
	id := o.accepted()
	if id == "" {
		return
	}
	if !o.due.IsZero() {
		after += time.Until(o.due)
	}
	rest(ctx, after)
	for range 3 {
		status, answer := l.ask(ctx, "cancel", o.tenant.API, "POST", "/v1/call-requests/"+id+"/cancel", nil)
		o.mu.Lock()
		o.told = status
		o.doubt = o.doubt || status == 0 || status == 503
		o.mu.Unlock()
		switch status {
		case 200, 409:
			return
		case 0, 503:
			rest(ctx, again)
		default:
			l.lie("cancel of %s: %d %s", id, status, answer)
			return
		}
	}
}

func (o *order) number() string { return o.tenant.ID + " " + o.to }

func (l *load) isShut(o *order) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.shut[o.number()]) > 0
}

// optOutAndBack asks for a call that is due in a while, opts the number out, is refused a second call, grants the number again, and calls.
func (l *load) optOutAndBack(ctx context.Context, o *order, later time.Duration) {
	o.due = time.Now().Add(bound + 500*time.Millisecond + later)
	l.place(ctx, o)
	if status, answer := l.insist(ctx, "opt-out", o.tenant.API, "POST", "/v1/opt-outs", map[string]any{"phone_e164": o.to}); status != 200 {
		l.lie("opt-out of %s: %d %s", o.to, status, answer)
		return
	}
	l.mu.Lock()
	l.shut[o.number()] = append(l.shut[o.number()], span{from: time.Now().Add(bound)})
	l.mu.Unlock()
	refused := newOrder(o.tenant, o.name+"-refused", o.to)
	if status := l.place(ctx, refused); status == 202 {
		l.lie("request %s for %s was accepted after its opt-out was answered", refused.accepted(), o.to)
	}
	rest(ctx, time.Until(o.due)+time.Second)
	l.mu.Lock()
	l.shut[o.number()][0].until = time.Now()
	l.mu.Unlock()
	if status, answer := l.insist(ctx, "re-grant", o.tenant.API, "DELETE", "/v1/opt-outs/"+o.to, nil); status != 200 {
		l.lie("end of the opt-out of %s: %d %s", o.to, status, answer)
		return
	}
	if status := l.place(ctx, newOrder(o.tenant, o.name+"-granted", o.to)); status == 422 {
		l.lie("a call to %s was refused after its opt-out had been taken back", o.to)
	}
}

func (l *load) read(ctx context.Context, t *tenant) {
	for _, path := range []string{"/v1/calls?limit=20", "/v1/wallet", "/v1/webhook-subscriptions"} {
		if status, answer := l.ask(ctx, "GET", t.API, "GET", path, nil); status != 200 && status != 503 && status != 0 {
			l.lie("GET %s: %d %s", path, status, answer)
		}
	}
}

// fund pays in now and then, each payment twice with one reference.
func (l *load) fund(ctx context.Context, t *tenant) {
	amount := 10 * money.Credit
	if t.poor {
		amount = money.Credit / 100
	}
	for n := 0; rest(ctx, 8*time.Second); n++ {
		body := map[string]any{"type": "top_up", "amount": amount.String(), "reference": fmt.Sprintf("payment-%d", n)}
		whole := context.WithoutCancel(ctx)
		for range 2 {
			path := "/admin/v1/workspaces/" + t.ID + "/wallet/transactions"
			if status, answer := l.insist(whole, "top-up", t.Admin, "POST", path, body); status != 201 && status != 200 {
				l.lie("top-up of workspace %s: %d %s", t.name, status, answer)
			}
		}
		t.paidIn(amount)
	}
}

// nap pauses the tenant's subscription now and then, and leaves it active.
func (l *load) nap(ctx context.Context, t *tenant) {
	path := "/v1/webhook-subscriptions/" + t.subscription
	for rest(ctx, 6*time.Second) {
		for _, status := range []string{"paused", "active"} {
			if code, answer := l.insist(context.WithoutCancel(ctx), "pause, resume", t.API, "PATCH", path, map[string]any{"status": status}); code != 200 {
				l.lie("PATCH of a subscription to %s: %d %s", status, code, answer)
			}
			if status == "paused" {
				rest(ctx, 2500*time.Millisecond)
			}
		}
	}
}
