package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ringfence.dev/libs/money"
	"ringfence.dev/test/kit"
)

type request struct {
	ID           string    `json:"id"`
	Status       string    `json:"status"`
	CallID       *string   `json:"call_id"`
	To           string    `json:"to"`
	ScheduledFor time.Time `json:"scheduled_for"`
	ExternalRef  *string   `json:"external_ref"`
	ErrorCode    *string   `json:"error_code"`
}

type call struct {
	CallID  string      `json:"call_id"`
	Status  string      `json:"status"`
	To      string      `json:"to"`
	Charged money.Micro `json:"credits_charged"`
	Timings struct {
		DialedAt    *time.Time `json:"dialed_at"`
		TalkSeconds *int32     `json:"talk_seconds"`
	} `json:"timings"`
}

type delivery struct {
	ID       string  `json:"id"`
	EventID  string  `json:"event_id"`
	Type     string  `json:"event_type"`
	CallID   *string `json:"call_id"`
	Sequence int     `json:"sequence"`
	Status   string  `json:"status"`
}

var terminal = map[string]string{
	"completed": "call.completed", "no_answer": "call.no_answer", "busy": "call.busy", "failed": "call.failed", "canceled": "call.failed",
}

// observedState contains everything that the API returns about one workspace after the run.
type observedState struct {
	*tenant
	requests   []request
	calls      map[string]call
	deliveries []delivery
	arrived    []kit.Delivery
}

// checker checks the guarantees from outside the services. It reads only the APIs, the received
// webhooks, the carrier's log and the log of the stack.
type checker struct {
	w *testStack
	l *load
	r *Report
}

func (j *checker) check(ctx context.Context) error {
	log, err := j.awaitDisconnected(ctx)
	if err != nil {
		return err
	}
	j.awaitTerminalEvents(ctx)
	owned := map[string]bool{}
	for _, t := range j.w.tenants {
		known, err := j.read(ctx, t)
		if err != nil {
			return fmt.Errorf("read workspace %s: %w", t.name, err)
		}
		for _, req := range known.requests {
			if req.CallID != nil {
				owned[*req.CallID] = true
			}
		}
		j.count(known)
		j.checkResponses(known, dialCounts(log))
		j.checkGates(known)
		j.checkWebhooks(known)
		j.checkTalkTimes(known, log)
		if err := errors.Join(j.checkBalance(ctx, known), j.checkIsolation(ctx, known)); err != nil {
			return err
		}
	}
	j.checkDials(log, owned)
	for _, lie := range j.l.wrongResponses {
		j.r.broken(trueResponses, lie)
	}
	return j.checkLogs()
}

func (j *checker) count(known observedState) {
	for _, req := range known.requests {
		j.r.Requests[req.Status]++
		if req.ErrorCode != nil {
			j.r.Codes[*req.ErrorCode]++
		}
	}
	for _, c := range known.calls {
		j.r.Calls[c.Status]++
	}
	for _, status := range []string{"queued", "dialing"} {
		if n := j.r.Requests[status]; n > 0 {
			j.r.broken(everyRequestEnds, fmt.Sprintf("%d requests of workspace %s are %s", n, known.name, status))
		}
	}
}

// checkIsolation checks that no workspace can read the data of another workspace.
func (j *checker) checkIsolation(ctx context.Context, known observedState) error {
	for _, other := range j.w.tenants {
		if other == known.tenant {
			continue
		}
		for _, req := range known.requests[:min(10, len(known.requests))] {
			switch status, _, err := other.API.Do(ctx, "GET", "/v1/call-requests/"+req.ID, nil); {
			case err != nil:
				return err
			case status != 404:
				j.r.broken(tenantIsolation,
					fmt.Sprintf("request %s of workspace %s, requested by workspace %s: status %d", req.ID, known.name, other.name,
						status))
			}
		}
	}
	return nil
}

func dialCounts(log []kit.LogLine) map[string]int {
	dials := map[string]int{}
	for _, line := range log {
		if line.Kind == "originate" {
			dials[line.CallID]++
		}
	}
	return dials
}

// checkDials checks each originate request that the carrier received. Each originate must belong to
// a call request. No call request may have two originates.
func (j *checker) checkDials(log []kit.LogLine, owned map[string]bool) {
	seen, refused := map[string]bool{}, map[string]bool{}
	for _, line := range log {
		refused[line.CallID] = refused[line.CallID] || line.Kind == refusedLine
	}
	for _, line := range log {
		if line.Kind != "originate" {
			continue
		}
		j.r.Dials++
		switch {
		case seen[line.CallID]:
			j.r.broken(atMostOnceDialing, fmt.Sprintf("%s rang again for call %s", line.To, line.CallID))
		case refused[line.CallID]: // a trunk refused this attempt, so no phone rang
		case !owned[line.CallID]:
			j.r.broken(atMostOnceDialing, fmt.Sprintf("%s rang for call %s, which belongs to no request", line.To, line.CallID))
		}
		seen[line.CallID] = true
	}
}

// checkResponses checks that each accepted call request exists, that no canceled call request was
// dialed, and that each call belongs to a call request.
func (j *checker) checkResponses(known observedState, dials map[string]int) {
	requests, calls, asked := map[string]request{}, map[string]bool{}, map[string]int{}
	for _, req := range known.requests {
		requests[req.ID] = req
		if req.ExternalRef != nil {
			if asked[*req.ExternalRef]++; asked[*req.ExternalRef] == 2 {
				j.r.broken(trueResponses,
					fmt.Sprintf("%s of workspace %s was ordered once and is two call requests, the second is %s", *req.ExternalRef,
						known.name, req.ID))
			}
		}
		if req.CallID == nil {
			continue
		}
		calls[*req.CallID] = true
		if _, there := known.calls[*req.CallID]; !there {
			j.r.broken(durability, fmt.Sprintf("call %s of request %s", *req.CallID, req.ID))
		}
		if (req.Status == "canceled" || req.Status == "blocked") && dials[*req.CallID] > 0 {
			j.r.broken(trueResponses, fmt.Sprintf("request %s is %s, and its call %s was dialed %d times",
				req.ID, req.Status, *req.CallID, dials[*req.CallID]))
		}
	}
	for id := range known.calls {
		if !calls[id] {
			j.r.broken(atMostOnceDialing, fmt.Sprintf("call %s is the second call of its request", id))
		}
	}
	for _, o := range j.l.orders {
		if o.tenant != known.tenant || o.id == "" {
			continue
		}
		j.r.Accepted++
		req, there := requests[o.id]
		switch {
		case !there:
			j.r.broken(durability, fmt.Sprintf("request %s to %s", o.id, o.to))
		case o.cancelStatus == 200 && req.Status != "canceled":
			j.r.broken(trueResponses, fmt.Sprintf("cancel of request %s returned 200, but its status is %s", o.id, req.Status))
		case o.cancelStatus == 409 && !o.cancelUnanswered && req.Status == "canceled":
			j.r.broken(trueResponses, fmt.Sprintf("cancel of request %s returned 409, but the request is canceled", o.id))
		}
	}
}

// checkGates checks that no number was dialed before its scheduled time or during an opt-out.
func (j *checker) checkGates(known observedState) {
	due := map[string]time.Time{}
	for _, req := range known.requests {
		if req.CallID != nil {
			due[*req.CallID] = req.ScheduledFor
		}
	}
	for id, c := range known.calls {
		at := c.Timings.DialedAt
		if at == nil {
			continue
		}
		if at.Before(due[id]) {
			j.r.broken(dialTimeCompliance, fmt.Sprintf("call %s was dialed %s before its time", id, due[id].Sub(*at)))
		}
		for _, s := range j.l.forbiddenSpans[known.ID+" "+c.To] {
			if at.After(s.from) && (s.until.IsZero() || at.Before(s.until)) {
				j.r.broken(dialTimeCompliance, fmt.Sprintf("call %s to %s was dialed %s after an opt-out was binding",
					id, c.To, at.Sub(s.from)))
			}
		}
	}
}

// checkWebhooks checks the events of each call. Each event must be delivered, or recorded as
// skipped or failed. Each call must have one terminal event.
func (j *checker) checkWebhooks(known observedState) {
	type event struct {
		call     string
		sequence int
	}
	ends, last := terminalEvents(known.arrived, known.deliveries), map[string]int{}
	there, times := map[event]bool{}, map[string]int{}
	for _, d := range known.arrived {
		if _, mine := known.calls[d.CallID]; !mine {
			j.r.broken(
				tenantIsolation,
				fmt.Sprintf("workspace %s received an event of call %s, which it does not have", known.name, d.CallID),
			)
		}
		there[event{d.CallID, d.Sequence}] = true
		last[d.CallID] = max(last[d.CallID], d.Sequence)
		if times[d.EventID]++; times[d.EventID] == 2 {
			j.r.Twice++
		}
		if !d.Signed {
			j.r.broken(noLostEvent, fmt.Sprintf("delivery %s is not signed", d.DeliveryID))
		}
	}
	j.r.Delivered += len(times)
	for _, d := range known.deliveries {
		j.r.Recorded[d.Status]++
		if d.Status == "skipped" && !known.pausesWebhooks {
			j.r.broken(
				noLostEvent,
				fmt.Sprintf("delivery %s of workspace %s was skipped, and its subscription was never paused", d.ID, known.name),
			)
		}
		if d.CallID != nil {
			there[event{*d.CallID, d.Sequence}] = true
			last[*d.CallID] = max(last[*d.CallID], d.Sequence)
		}
	}
	for id, c := range known.calls {
		if len(ends[id]) > 1 {
			j.r.broken(everyRequestEnds, fmt.Sprintf("call %s has %d terminal events", id, len(ends[id])))
		}
		for _, kind := range ends[id] {
			if kind != terminal[c.Status] {
				j.r.broken(everyRequestEnds, fmt.Sprintf("call %s is %s, and its event is %s", id, c.Status, kind))
			}
		}
		if len(ends[id]) == 0 {
			j.r.broken(noLostEvent, fmt.Sprintf("the end of call %s (%s) of workspace %s", id, c.Status, known.name))
		}
		for n := 1; n < last[id]; n++ {
			if !there[event{id, n}] {
				j.r.broken(noLostEvent, fmt.Sprintf("event %d of call %s of workspace %s", n, id, known.name))
			}
		}
	}
}

// terminalEvents maps each call to the ids of its terminal events. Skipped and failed events count
// too.
func terminalEvents(arrived []kit.Delivery, recorded []delivery) map[string]map[string]string {
	of := map[string]map[string]string{}
	note := func(call, event, kind string) {
		if kind == "call.ringing" || kind == "call.answered" {
			return
		}
		if of[call] == nil {
			of[call] = map[string]string{}
		}
		of[call][event] = kind
	}
	for _, d := range arrived {
		note(d.CallID, d.EventID, d.Type)
	}
	for _, d := range recorded {
		if d.CallID != nil {
			note(*d.CallID, d.EventID, d.Type)
		}
	}
	return of
}

// checkLogs checks that no record was dead-lettered and that no process panicked.
func (j *checker) checkLogs() error {
	log, err := os.ReadFile(filepath.Join(j.w.home, "stack.log"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(log)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.Contains(line, "record parked; later records"), strings.Contains(line, "handler panicked"),
			strings.Contains(line, "panic:"), strings.Contains(line, "DATA RACE"):
			j.r.broken(trueResponses, line)
		}
	}
	return nil
}
