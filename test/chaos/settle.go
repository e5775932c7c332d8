package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"ringfence.dev/libs/money"
	"ringfence.dev/test/kit"
)

// awaitSettled waits until no work is in progress. After the timeout, it reports the remaining work
// as stuck.
func (j *checker) awaitSettled(ctx context.Context, timeout time.Duration) {
	var open []string
	err := kit.Until(ctx, timeout, "no work is in progress", func() (bool, error) {
		open = nil
		for _, t := range j.w.tenants {
			found, err := j.listOpenWork(ctx, t)
			if err != nil {
				open = append(open, fmt.Sprintf("workspace %s cannot be looked at: %v", t.name, err))
			}
			open = append(open, found...)
		}
		sleep(ctx, 250*time.Millisecond)
		return len(open) == 0, nil
	})
	if err != nil {
		j.r.broken(everyRequestEnds, open...)
	}
}

// listOpenWork lists the requests, calls and deliveries of a workspace that are in progress.
func (j *checker) listOpenWork(ctx context.Context, t *tenant) (found []string, err error) {
	var errs []error
	list := func(client *kit.Client, path, what string, statuses ...string) {
		for _, status := range statuses {
			var page kit.Page[struct {
				ID string `json:"id"`
			}]
			errs = append(errs, client.Into(ctx, "GET", path+"?limit=100&status="+status, nil, 200, &page))
			for _, one := range page.Data {
				found = append(found, fmt.Sprintf("%s %s is %s", what, one.ID, status))
			}
		}
	}
	list(t.API, "/v1/call-requests", "request", "queued", "dialing")
	list(t.API, "/v1/calls", "call", "initiated", "ringing", "in_progress")
	admin := "/admin/v1/workspaces/" + t.ID
	list(t.Admin, admin+"/webhook-subscriptions/"+t.subscription+"/deliveries", "delivery", "queued", "held")
	var wallet struct{ Held money.Micro }
	errs = append(errs, t.Admin.Into(ctx, "GET", admin+"/wallet", nil, 200, &wallet))
	if wallet.Held != 0 {
		found = append(found, fmt.Sprintf("%s credits of workspace %s are held", wallet.Held, t.name))
	}
	return found, errors.Join(errs...)
}

// awaitTerminalEvents waits for terminal events that have no delivery yet. If an event does not
// arrive, a later check reports it.
func (j *checker) awaitTerminalEvents(ctx context.Context) {
	_ = kit.Until(ctx, 30*time.Second, "every terminal event has arrived", func() (bool, error) {
		for _, t := range j.w.tenants {
			ids, err := callIDs(ctx, t)
			if err != nil {
				return false, err
			}
			left, err := recorded(ctx, t)
			if err != nil {
				return false, err
			}
			ends := terminalEvents(j.w.hooks.Deliveries(t.ID), left)
			if slices.ContainsFunc(ids, func(id string) bool { return len(ends[id]) == 0 }) {
				sleep(ctx, time.Second)
				return false, nil
			}
		}
		return true, nil
	})
}

func callIDs(ctx context.Context, t *tenant) (ids []string, err error) {
	type light struct{ ID string }
	calls, err := kit.All(ctx, t.API, "/v1/calls", nil, func(c light) string { return c.ID })
	for _, c := range calls {
		ids = append(ids, c.ID)
	}
	return ids, err
}

// recorded returns the deliveries of a workspace that were skipped or failed.
func recorded(ctx context.Context, t *tenant) (all []delivery, err error) {
	path := "/admin/v1/workspaces/" + t.ID + "/webhook-subscriptions/" + t.subscription + "/deliveries"
	for _, status := range []string{"skipped", "failed"} {
		some, err := kit.All(ctx, t.Admin, path, url.Values{"status": {status}}, func(d delivery) string { return d.ID })
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// awaitDisconnected returns the carrier's log after all phones have disconnected. It reports a
// phone that stays connected because the stack did not hang up.
func (j *checker) awaitDisconnected(ctx context.Context) (log []kit.LogLine, err error) {
	var open map[string]int
	late := kit.Until(ctx, 20*time.Second, "every phone has disconnected", func() (bool, error) {
		if log, err = j.readCarrierLog(ctx); err != nil {
			return false, err
		}
		open = map[string]int{}
		for _, line := range log {
			switch line.Kind {
			case "originate":
				open[line.CallID]++
			case "hangup":
				if open[line.CallID]--; open[line.CallID] == 0 {
					delete(open, line.CallID)
				}
			}
		}
		return len(open) == 0, nil
	})
	if err == nil && late != nil {
		for id := range open {
			j.r.broken(everyRequestEnds, fmt.Sprintf("call %s was never hung up at the carrier", id))
		}
	}
	return log, err
}

// readCarrierLog returns the carrier's log. Over SIP, it creates the same log from the messages of
// the far ends.
func (j *checker) readCarrierLog(ctx context.Context) (log []kit.LogLine, err error) {
	if !j.w.sip {
		return j.w.currentStack().CarrierLog(ctx)
	}
	for i, one := range j.w.farms {
		calls, err := one.Calls()
		if err != nil {
			return nil, err
		}
		for _, c := range calls {
			log = append(log, convertSippCall(c, i+1 < len(j.w.farms))...)
		}
	}
	return log, nil
}

// convertSippCall converts a call in sipp's log into lines in the format of the simulated carrier's
// log. hasNextTrunk is true if another trunk can accept a call that this trunk refused.
func convertSippCall(c *kit.SippCall, hasNextTrunk bool) (log []kit.LogLine) {
	line := func(kind string, at time.Time) {
		if !at.IsZero() {
			log = append(log, kit.LogLine{Kind: kind, CallID: c.CallID, To: c.To, At: at})
		}
	}
	for range c.Dials {
		line("originate", c.Begun)
	}
	line("ringing", c.Rang)
	line("answer", c.Answered)
	over := c.Over
	if c.Silent { // sipp sent nothing, so the result is unknown
		over = c.Begun
	}
	for range c.Dials {
		line("hangup", over)
	}
	if hasNextTrunk && c.Refused == 503 && c.Rang.IsZero() {
		line(refusedLine, c.Over)
	}
	return log
}

// refusedLine is the kind of a log line for a call that a trunk refused. Another trunk can have
// accepted the same call.
const refusedLine = "refuse"

func (j *checker) read(ctx context.Context, t *tenant) (known observedState, err error) {
	known = observedState{tenant: t, calls: map[string]call{}, arrived: j.w.hooks.Deliveries(t.ID)}
	if known.requests, err = kit.All(ctx, t.API, "/v1/call-requests", nil, func(r request) string { return r.ID }); err != nil {
		return known, err
	}
	ids, err := callIDs(ctx, t)
	if err != nil {
		return known, err
	}
	if known.deliveries, err = recorded(ctx, t); err != nil {
		return known, err
	}
	var mu sync.Mutex
	var readers sync.WaitGroup
	var faults []error
	share := (len(ids) + 7) / 8
	for part := range slices.Chunk(ids, max(share, 1)) {
		readers.Go(func() {
			for _, id := range part {
				var full call
				err := t.API.Into(ctx, "GET", "/v1/calls/"+id, nil, 200, &full)
				mu.Lock()
				known.calls[id] = full
				if err != nil {
					faults = append(faults, err)
				}
				mu.Unlock()
			}
		})
	}
	readers.Wait()
	return known, errors.Join(faults...)
}

// checkTalkTimes compares the talk time of each completed call with the carrier's log, because the
// talk time is charged.
func (j *checker) checkTalkTimes(known observedState, log []kit.LogLine) {
	answered, over := map[string]time.Time{}, map[string]time.Time{}
	for _, line := range log {
		switch line.Kind {
		case "answer":
			answered[line.CallID] = line.At
		case "hangup":
			over[line.CallID] = line.At
		}
	}
	for id, c := range known.calls {
		if c.Status != "completed" {
			continue
		}
		talked := over[id].Sub(answered[id])
		if reported := c.Timings.TalkSeconds; reported == nil || answered[id].IsZero() ||
			!j.isSameTalkTime(int64(*reported), int64((talked+time.Second-1)/time.Second)) {
			j.r.broken(
				exactMoney,
				fmt.Sprintf("call %s talked for %s by the carrier's log, and is charged for another time", id, talked),
			)
		}
	}
}

// isSameTalkTime reports whether two talk times are equal within the tolerance. In SIP calls each
// side has its own clock, and a stopped dialer receives a BYE late. In simulated calls the
// tolerance is zero.
func (j *checker) isSameTalkTime(reported, talked int64) bool {
	if !j.w.sip {
		return reported == talked
	}
	return reported >= talked-1 && reported <= talked+1+int64(mostPause/time.Second)
}

// checkCharges compares the charge of each call with the call's talk time. It returns the sum of
// the charges.
func (j *checker) checkCharges(known observedState) (all money.Micro) {
	for id, c := range known.calls {
		want := money.Micro(0)
		if c.Status == "completed" && c.Timings.TalkSeconds != nil {
			want = min(money.Price(perMinute, *c.Timings.TalkSeconds, 1), money.Price(perMinute, longestCall, 1))
		}
		if c.Charged != want {
			j.r.addMoneyFault(c.Charged-want, fmt.Sprintf("call %s is %s and costs %s, not %s", id, c.Status, c.Charged, want))
		}
		all += c.Charged
	}
	return all
}

// checkBalance checks that the balance is the sum of the top-ups minus the charges, and that the
// reconciliation finds no difference.
func (j *checker) checkBalance(ctx context.Context, known observedState) error {
	paid, charged := known.credit, j.checkCharges(known)
	var wallet struct{ Balance money.Micro }
	if err := known.API.Into(ctx, "GET", "/v1/wallet", nil, 200, &wallet); err != nil {
		return err
	}
	j.r.Paid, j.r.Charged = j.r.Paid+paid, j.r.Charged+charged
	if wallet.Balance != paid-charged {
		j.r.addMoneyFault(wallet.Balance-(paid-charged), fmt.Sprintf(
			"the balance of workspace %s is %s: %s were paid in and %s charged", known.name, wallet.Balance, paid, charged))
	}
	differences, err := known.Differences(ctx)
	for _, difference := range differences {
		j.r.broken(exactMoney, "the wallet of workspace "+known.name+" differs from the ledger or the charges: "+difference)
	}
	return err
}
