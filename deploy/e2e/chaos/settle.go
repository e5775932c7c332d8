package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"ringfence.dev/deploy/e2e/rig"
	"ringfence.dev/libs/money"
)

// settle waits until nothing is under way; what still is after the time given is stuck.
func (j *judge) settle(ctx context.Context, within time.Duration) {
	var open []string
	err := rig.Until(ctx, within, "everything ends", func() (bool, error) {
		open = nil
		for _, t := range j.w.tenants {
			found, err := j.open(ctx, t)
			if err != nil {
				open = append(open, fmt.Sprintf("workspace %s cannot be looked at: %v", t.name, err))
			}
			open = append(open, found...)
		}
		rest(ctx, 250*time.Millisecond)
		return len(open) == 0, nil
	})
	if err != nil {
		j.r.broken(lawEnds, open...)
	}
}

// open lists what of a workspace is under way.
func (j *judge) open(ctx context.Context, t *tenant) (found []string, err error) {
	var errs []error
	list := func(client *rig.Client, path, what string, statuses ...string) {
		for _, status := range statuses {
			var page rig.Page[struct {
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

// telephones is the carrier's log when nobody is on the line any more. Who still is after a while was not hung up.
func (j *judge) telephones(ctx context.Context) (log []rig.LogLine, err error) {
	var open map[string]int
	late := rig.Until(ctx, 20*time.Second, "everybody hangs up", func() (bool, error) {
		if log, err = j.w.running().CarrierLog(ctx); err != nil {
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
			j.r.broken(lawEnds, fmt.Sprintf("call %s was never hung up at the carrier", id))
		}
	}
	return log, err
}

// read is all that the API tells of a workspace.
func (j *judge) read(ctx context.Context, t *tenant) (known truth, err error) {
	known = truth{tenant: t, calls: map[string]call{}, arrived: j.w.hooks.Deliveries(t.ID)}
	if known.requests, err = rig.All(ctx, t.API, "/v1/call-requests", nil, func(r request) string { return r.ID }); err != nil {
		return known, err
	}
	type light struct{ ID string }
	ids, err := rig.All(ctx, t.API, "/v1/calls", nil, func(c light) string { return c.ID })
	if err != nil {
		return known, err
	}
	path := "/admin/v1/workspaces/" + t.ID + "/webhook-subscriptions/" + t.subscription + "/deliveries"
	for _, status := range []string{"skipped", "failed"} {
		some, err := rig.All(ctx, t.Admin, path, url.Values{"status": {status}}, func(d delivery) string { return d.ID })
		if err != nil {
			return known, err
		}
		known.deliveries = append(known.deliveries, some...)
	}
	var mu sync.Mutex
	var readers sync.WaitGroup
	var faults []error
	share := (len(ids) + 7) / 8
	for part := range slices.Chunk(ids, max(share, 1)) {
		readers.Go(func() {
			for _, one := range part {
				var full call
				err := t.API.Into(ctx, "GET", "/v1/calls/"+one.ID, nil, 200, &full)
				mu.Lock()
				known.calls[one.ID] = full
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
