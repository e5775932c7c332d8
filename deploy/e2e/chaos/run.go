package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ringfence.dev/deploy/e2e/rig"
	"ringfence.dev/libs/money"
)

// calmBefore is load without faults, before the first and after the last: what is hurt should be at work.
const calmBefore = 2 * time.Second

// run does all of it. An error says that it could not be judged; a broken law is in the report. A context that ends shortens the faults, nothing else.
func run(ctx context.Context, set settings, say func(string)) (report *Report, err error) {
	plan := Plan(set.seed, set.length, set.field)
	whole := context.WithoutCancel(ctx)
	r := newReport()
	r.Seed, r.Commit, r.Fingerprint, r.Planned, r.Replicas, r.Length = set.seed, commit(whole), fingerprint(plan), len(plan), set.replicas, set.length
	say(fmt.Sprintf("chaos: seed %d, plan %s: %d faults in %s; %d of each service, %d deeds a second", set.seed, r.Fingerprint, len(plan), set.length, set.replicas, set.rate))
	w, err := raise(ctx, set)
	keep := true
	defer func() {
		if keep {
			say("chaos: kept " + w.home + ", see stack.log there")
		}
		err = errors.Join(err, w.raze(keep))
	}()
	if err != nil {
		return nil, err
	}
	l := newLoad(w)
	began := time.Now()
	if r.Faults, err = w.storm(ctx, plan, l, say); err != nil {
		return nil, err
	}
	r.Storm = time.Since(began)
	say("chaos: the faults are over; waiting until everything has settled")
	settling := time.Now()
	j := &judge{w: w, l: l, r: r}
	j.settle(whole, set.patient)
	r.Settled, r.Answers, r.Missed = time.Since(settling), l.answers, l.missed
	if err := j.judge(whole); err != nil {
		return nil, err
	}
	keep = !r.Holds() && !set.expendable
	return r, nil
}

// storm is the load with the plan's faults in it. All wounds are healed when it returns, and all questions answered.
func (w *world) storm(ctx context.Context, plan []Fault, l *load, say func(string)) (done inflicted, err error) {
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() { l.run(working) })
	began := time.Now()
	rest(ctx, calmBefore)
	done, err = w.inflict(ctx, plan, func(f Fault) {
		asked, accepted := l.standing()
		say(fmt.Sprintf("%s  %-60s asked %5d  accepted %5d", clock(time.Since(began)), f, asked, accepted))
	})
	err = errors.Join(err, w.heal(context.WithoutCancel(ctx)))
	rest(ctx, calmBefore)
	end()
	all.Wait()
	return done, err
}

// standing is how much was asked and accepted so far.
func (l *load) standing() (asked, accepted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.answers {
		for _, n := range of {
			asked += n
		}
	}
	for _, o := range l.orders {
		if o.accepted() != "" {
			accepted++
		}
	}
	return asked, accepted
}

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
