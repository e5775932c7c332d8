package dispatching

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/crash"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

const (
	// Bounds of one claim and of one look along the queue.
	claimLanes = 64
	claimRows  = 256
	lookSteps  = 256
	claimLimit = 5 * time.Second
	// lookPace is the least time between two rounds of looks, whoever wakes us; a round that took long is followed by three times that.
	lookPace = 5 * time.Millisecond
)

// claimAll looks for subscriptions with due work when it is woken and at the poll's pace, and claims of those that have room.
func (d *Dispatcher) claimAll(ctx context.Context) {
	poll := time.NewTicker(d.cfg.Poll)
	defer poll.Stop()
	var rested <-chan time.Time
	for look := true; ; {
		wait := time.Until(d.rest)
		now := look && wait <= 0
		switch {
		case now:
			look, rested = false, nil
		case look && rested == nil: // what has room is served all the while
			rested = time.After(wait)
		}
		if err := d.claim(ctx, now); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "claim of due deliveries", "error", err)
			look = true
			select { // the poll's pace, whoever wakes us
			case <-ctx.Done():
			case <-poll.C:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
			look = true
		case <-poll.C:
			look = true
		case <-rested:
			rested = nil
		case <-d.lanes.ready:
		}
	}
}

// claim serves the lanes in line; with look it goes once along all subscriptions with open work and puts those with due work in line.
func (d *Dispatcher) claim(ctx context.Context, look bool) error {
	if look {
		d.around = &round{from: d.after}
	}
	for ctx.Err() == nil {
		if err := d.serve(ctx); err != nil {
			return err
		}
		full, short := d.lanes.full()
		if d.around == nil || full { // then the round goes on when something ends
			return d.tell(ctx, short)
		}
		start := time.Now()
		found, next, err := d.store.DueLanes(ctx, d.after, lookSteps, d.schedule.Attempts())
		if err != nil {
			return err
		}
		d.around.took += time.Since(start)
		d.lanes.found(found)
		d.after = next
		if d.around.over(next) {
			d.rest = time.Now().Add(max(lookPace, 3*d.around.took))
			d.around = nil
		}
	}
	return nil
}

// round is one walk along all subscriptions, wherever it begins.
type round struct {
	from    uuid.UUID
	took    time.Duration
	wrapped bool
}

// over says that the walk, which would go on behind next, has been everywhere.
func (r *round) over(next uuid.UUID) bool {
	if next == uuid.Nil {
		done := r.wrapped || r.from == uuid.Nil
		r.wrapped = true
		return done
	}
	return r.wrapped && bytes.Compare(next[:], r.from[:]) >= 0
}

// serve claims for the lanes in line until none has room.
func (d *Dispatcher) serve(ctx context.Context) error {
	for ctx.Err() == nil {
		turn, rooms := d.lanes.ask()
		if len(rooms) == 0 {
			return nil
		}
		start := time.Now()
		// A claim counts the attempts it takes: begun, it is finished and its work is sent, also when ctx ends meanwhile.
		claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(claimLimit, store.StartLimit(d.cfg.Lease)))
		work, err := d.store.ClaimDue(claiming, store.Claim{Room: rooms, Lease: d.cfg.Lease, Attempts: d.schedule.Attempts()})
		cancel()
		if err != nil {
			d.lanes.refund(rooms)
			return err
		}
		d.metrics.claimSeconds.Observe(time.Since(start).Seconds())
		if len(work) > 0 {
			crash.Point("webhook-dispatcher: after claim")
		}
		fly, back := d.lanes.got(turn, rooms, work)
		for _, w := range fly {
			d.launch(ctx, w)
		}
		if len(back) > 0 {
			d.release(ctx, back)
		}
	}
	return nil
}

// release gives back what there was no room for: its url has changed since its room was reckoned.
func (d *Dispatcher) release(ctx context.Context, back []delivery.Work) {
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimLimit)
	defer cancel()
	if err := d.store.Release(releasing, back); err != nil { // their leases bring them back
		slog.WarnContext(ctx, "release claimed deliveries", "deliveries", len(back), "error", err)
	}
}

// tell lets other replicas know, once in a poll, that there is more due than this one can take.
func (d *Dispatcher) tell(ctx context.Context, short bool) error {
	if !short || time.Since(d.told) < d.cfg.Poll {
		return nil
	}
	d.told = time.Now()
	return d.store.Notify(ctx)
}

// found notes which subscriptions have due work and puts them in line.
func (l *lanes) found(due []store.Lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.age()
	for _, lane := range due {
		one := l.lane(lane.SubscriptionID)
		one.at(lane.URL)
		one.first, one.retry = lane.First, lane.Retry
		one.waits = one.waits || lane.First
		if !lane.ResumedAt.IsZero() && !lane.ResumedAt.Equal(one.resumed) {
			one.resumed, one.window = lane.ResumedAt, min(one.window, resumeWindow)
			one.trouble.resume(time.Now())
			l.prove(one, false)
		}
		to := l.host(one.host)
		if one.line != l.lines[0] && one.line != l.lines[1] && (one.line != to.line || to.flying < l.perHost) {
			l.dequeue(one) // it need not wait for that host any more
		}
		if one.queued == nil {
			l.enqueue(one)
		}
		l.settle(one, to)
	}
}

// full says that no lane may open a request, short that one with due work and a window has no room.
func (l *lanes) full() (full, short bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full = l.flying >= l.most
	return full, full || l.lines[0].Len()+l.lines[1].Len() > 0
}

// ask reserves room for the lanes in line and says how much each may claim. What follows is got or refund.
func (l *lanes) ask() (turn uint64, rooms []store.Room) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.age()
	l.turn++
	l.asked = time.Now()
	left := claimRows
	for i := range uint64(2) { // turn about, so that neither kind keeps the other waiting
		kind := (l.turn + i) % 2
		line := l.lines[kind]
		for line.Len() > 0 && l.free(kind == 1) > 0 && len(rooms) < claimLanes && left > 0 {
			one, _ := line.Front().Value.(*lane)
			l.dequeue(one)
			to := l.host(one.host)
			total := min(l.room(one, to), left)
			retries := min(total, max(0, retryShare(one.window)-one.retries))
			if total == 0 || !one.first && retries == 0 {
				if to.flying >= l.perHost {
					one.line, one.queued = to.line, to.line.PushBack(one)
				}
				l.settle(one, to)
				continue // what it has open, or what its host has, will end
			}
			for range total {
				l.occupy(one, to)
			}
			l.settle(one, to)
			left -= total
			rooms = append(rooms, store.Room{SubscriptionID: one.id, Total: total, Retries: retries, Within: one.within()})
		}
	}
	return l.turn, rooms
}

// within is how far back the next claim looks for first tries; zero: to the very first.
func (one *lane) within() time.Duration {
	now := time.Now()
	if one.mark.IsZero() || now.Sub(one.swept) >= sweepEach {
		one.swept = now
		return 0
	}
	return now.Sub(one.mark) + overlap
}

// refund gives back all the room of a claim that failed. The next look finds the work again.
func (l *lanes) refund(rooms []store.Room) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, room := range rooms {
		one := l.open[room.SubscriptionID]
		one.mark = time.Time{}
		for range room.Total {
			l.cancel(one, one.host)
		}
	}
}

// got settles what a claim found: fly has its seats, back had none.
func (l *lanes) got(turn uint64, rooms []store.Room, work []delivery.Work) (fly, back []delivery.Work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.age()
	type share struct {
		all, retries int
		last         time.Duration // how long the youngest first try is due
	}
	taken := make(map[uuid.UUID]share, len(rooms))
	for _, w := range work {
		of := taken[w.SubscriptionID]
		switch {
		case w.Retry:
			of.retries++
		case of.all == of.retries || w.Lag < of.last:
			of.last = w.Lag
		}
		of.all++
		taken[w.SubscriptionID] = of
	}
	for _, room := range rooms {
		one, of := l.open[room.SubscriptionID], taken[room.SubscriptionID]
		for range room.Total - of.all {
			l.cancel(one, one.host)
		}
		one.first, one.mark = of.all == room.Total && of.retries == 0, time.Time{} // they come before retries
		if one.first {
			one.mark = l.asked.Add(-of.last)
		}
		one.first = one.first || room.Within > 0 // one that began later does not know that there are no more

		one.retry = one.first || of.retries == room.Retries
		one.waits = one.first || one.waits && one.refused >= turn
	}
	for _, w := range work {
		one := l.open[w.SubscriptionID]
		if !l.redirect(one, w.URL) {
			back = append(back, w)
			continue
		}
		if w.Retry {
			one.retries++
		}
		fly = append(fly, w)
	}
	for _, room := range rooms {
		l.offer(l.open[room.SubscriptionID])
	}
	return fly, back
}

// redirect moves a seat to the host the claim found, when that is another than the one asked for; false: it is full.
func (l *lanes) redirect(one *lane, url string) bool {
	before := one.host
	if one.at(url); one.host == before {
		return true
	}
	from, to := one.leave(before), l.host(one.host)
	if to != from && to.flying >= l.perHost {
		one.first = true
		l.vacate(one, from)
		l.settle(one, to)
		return false
	}
	from.flying--
	to.flying++
	one.seats = append(one.seats, to)
	l.follow(from)
	l.settle(one, from)
	return true
}

// offer puts a lane in line when it has due work and room, and calls for a claim: now when a good part of its window is free, else
// soon, so that single places are claimed together.
func (l *lanes) offer(one *lane) {
	if l.lines[0].Len()+l.lines[1].Len() > 0 && l.flying < l.most {
		l.call((l.most-l.flying)*16 >= l.most)
	}
	if !one.first && !one.retry || one.queued != nil {
		return
	}
	to := l.host(one.host)
	defer l.settle(one, to)
	room := l.room(one, to)
	if one.flying > 0 && (room == 0 && to.flying < l.perHost || !one.first && one.retries >= retryShare(one.window)) {
		return // there is an end to come
	}
	l.enqueue(one)
	l.call(one.flying == 0 || room*4 >= one.window)
}

// call wakes whoever claims, now or soon.
func (l *lanes) call(now bool) {
	switch {
	case now:
		select {
		case l.ready <- struct{}{}:
		default:
		}
	case !l.gathering:
		l.gathering = true
		time.AfterFunc(gatherFor, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.gathering = false
			l.call(true)
		})
	}
}

func (l *lanes) enqueue(one *lane) {
	kind := 0
	if one.proven {
		kind = 1
	}
	one.line = l.lines[kind]
	one.queued = one.line.PushBack(one)
}

func (l *lanes) dequeue(one *lane) {
	if one.queued != nil {
		one.line.Remove(one.queued)
		one.queued, one.line = nil, nil
	}
}
