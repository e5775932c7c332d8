package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const (
	firstPaused = 7_000_000
	// pausedRequests call requests become due, 200 per second.
	pausedRequests = 1200
	dueInterval    = 5 * time.Millisecond
	pausePosters   = 16
	// noDialAfter is the time after the response to a pause. No call may be dialed later.
	noDialAfter = 2 * time.Second
)

// pauseTrial is one pause with its call requests.
type pauseTrial struct {
	*kit.Stack
	w *kit.Workspace
	// path is the operator's route of the pause.
	path string
	// everything is true if the pause applies to every workspace.
	everything bool
	load       *load
	// allDue is the time at which the last request is due.
	allDue, pausedAt time.Time
	live             kit.Request
	// shut is a workspace whose calling window closes during the pause.
	shut             *kit.Workspace
	waiting, blocked kit.Request
	// optedOut is the request to a number that opts out during the pause.
	optedOut kit.Request
}

// Call requests become due while an operator pauses dialing. The test kills both replicas of each
// service once, and then resumes dialing.
func TestPause_KilledServicesLoseNoRequestAndDialNothing(t *testing.T) {
	system := stack(t)
	for i, level := range []string{"everything", "workspace"} {
		t.Run(level, func(t *testing.T) {
			p := &pauseTrial{Stack: system.Stack, w: tenant(t, system.Stack, system.Hooks, killCredit)}
			p.path, p.everything = "/admin/v1/dialing", level == "everything"
			if !p.everything {
				p.path = "/admin/v1/workspaces/" + p.w.ID + "/dialing"
			}
			p.load = &load{w: p.w, accepted: map[string]string{}, answers: map[int]int{}}
			p.startLiveCall(t, number(firstPaused+i*100_000))
			p.schedule(t, firstPaused+i*100_000+10_000)
			until(t, "some requests are dialed", func() bool { return len(p.dials(t)) > pausedRequests/20 })
			t.Cleanup(func() { p.set(t, "active") })
			p.pausedAt = p.set(t, "paused")
			p.killEachService(t)
			p.changeGates(t)
			p.wantPaused(t)
			p.set(t, "active")
			p.wantEachDialedOnce(t)
			p.wantGatesObeyed(t)
			v, err := p.Judge(t.Context(), p.w, system.Hooks, p.load.accepted, 100_000, kit.HangTimeout)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(v)
			if err := v.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// set changes the state of dialing, and repeats the request while a service is starting. It returns
// the time of the response.
func (p *pauseTrial) set(t *testing.T, state string) time.Time {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	body := map[string]any{"state": state, "reason": "Wrong script"}
	err := kit.Until(ctx, kit.HangTimeout, "dialing is "+state, func() (bool, error) {
		status, answer, err := p.w.Admin.Do(ctx, http.MethodPut, p.path, body)
		if err != nil || status == http.StatusServiceUnavailable {
			return false, nil //nolint:nilerr // a service can still be starting, so try again
		}
		if status != http.StatusOK {
			return false, fmt.Errorf("PUT %s: %d %s, want 200", p.path, status, answer)
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

// startLiveCall places a call that lasts until it is hung up.
func (p *pauseTrial) startLiveCall(t *testing.T, to string) {
	t.Helper()
	carrier := kit.NewClient(p.Demo.SimURL, "")
	fault := map[string]any{"fault": "hold", "to": to, "times": 1}
	if err := carrier.Into(t.Context(), http.MethodPost, "/faults", fault, http.StatusCreated, nil); err != nil {
		t.Fatal(err)
	}
	placed, err := p.w.Place(t.Context(), map[string]any{"to": to})
	if err != nil {
		t.Fatal(err)
	}
	p.load.accepted[placed.ID] = to
	until(t, "the live call is answered", func() bool {
		p.live, err = p.w.Request(t.Context(), placed.ID)
		return err == nil && p.live.CallID != nil && p.statusOfLiveCall(t) == "in_progress"
	})
}

func (p *pauseTrial) statusOfLiveCall(t *testing.T) string {
	t.Helper()
	call, err := p.w.Call(t.Context(), *p.live.CallID)
	if err != nil {
		t.Fatal(err)
	}
	return call.Status
}

// schedule posts call requests that become due one after the other. It measures the first 50 POST
// requests, so that the others are queued before they become due.
func (p *pauseTrial) schedule(t *testing.T, first int) {
	t.Helper()
	const samples = 50
	began := time.Now()
	p.post(t, first, samples, func(int) time.Time { return began.Add(time.Minute) })
	lead := 2*time.Since(began)*pausedRequests/samples + time.Second
	from := time.Now().Add(lead)
	p.post(t, first+samples, pausedRequests-samples, func(n int) time.Time {
		return from.Add(time.Duration(n) * dueInterval)
	})
	p.allDue = from.Add(pausedRequests*dueInterval + 10*time.Second)
	p.optedOut = place(t, p.w, number(first+pausedRequests), p.allDue, false)
	p.load.accepted[p.optedOut.ID] = p.optedOut.To
	if !p.everything {
		return
	}
	shut, err := p.NewWorkspace(t.Context(), t.Name()+" shut", "1000")
	if err != nil {
		t.Fatal(err)
	}
	p.shut = shut
	p.waiting = place(t, shut, number(first+pausedRequests+1), p.allDue, true)
	p.blocked = place(t, shut, number(first+pausedRequests+2), p.allDue, false)
}

func place(t *testing.T, w *kit.Workspace, to string, due time.Time, wait bool) kit.Request {
	t.Helper()
	body := map[string]any{
		"to": to, "scheduled_for": due.UTC().Format(time.RFC3339Nano), "schedule_if_outside_hours": wait,
	}
	placed, err := w.Place(t.Context(), body)
	if err != nil {
		t.Errorf("place a call to %s: %v", to, err)
	}
	return placed
}

// post posts n call requests on several connections.
func (p *pauseTrial) post(t *testing.T, first, n int, due func(n int) time.Time) {
	t.Helper()
	next := make(chan int)
	var all sync.WaitGroup
	for range pausePosters {
		all.Go(func() {
			for i := range next {
				placed := place(t, p.w, number(first+i), due(i), false)
				p.load.mu.Lock()
				p.load.accepted[placed.ID] = placed.To
				p.load.mu.Unlock()
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// dials returns the times of the dials of each number of this trial, without the live call.
func (p *pauseTrial) dials(t *testing.T) map[string][]time.Time {
	t.Helper()
	log, err := p.CarrierLog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mine := map[string]bool{}
	for _, to := range p.load.accepted {
		mine[to] = to != p.live.To
	}
	dials := map[string][]time.Time{}
	for _, line := range log {
		if line.Kind == "originate" && mine[line.To] {
			dials[line.To] = append(dials[line.To], line.At)
		}
	}
	return dials
}

// killEachService kills the dialer last, and only when no dial is in progress, because an
// interrupted dial ends without a call.
func (p *pauseTrial) killEachService(t *testing.T) {
	t.Helper()
	for _, name := range []string{"gateway", "calls", "billing-wallet", "contacts-compliance", "dialer"} {
		if name == "dialer" {
			until(t, "no dial is in progress", func() bool {
				return time.Since(p.pausedAt) > noDialAfter && p.open(t)["dialing"] == 1
			})
			sharedstack.Equal(t, "status of the live call during the pause", p.statusOfLiveCall(t), "in_progress")
		}
		killed := p.Processes()[name]
		if len(killed) != 2 {
			t.Fatalf("processes of %s = %v, want 2", name, killed)
		}
		for i := range killed {
			if !p.KillOne(name, i) {
				t.Fatalf("there is no process of %s", name)
			}
		}
		until(t, "two new processes of "+name+" run", func() bool {
			running := p.Processes()[name]
			return len(running) == 2 && !slices.ContainsFunc(running, func(pid int) bool { return slices.Contains(killed, pid) })
		})
		if err := p.AwaitReady(t.Context(), kit.HangTimeout); err != nil {
			t.Fatal(err)
		}
	}
}

// open returns the number of call requests of each status. It waits while a service is starting.
func (p *pauseTrial) open(t *testing.T) map[string]int {
	t.Helper()
	statuses := map[string]int{}
	var requests []kit.Request
	until(t, "the call requests can be read", func() (read bool) {
		var err error
		requests, err = p.w.Requests(t.Context())
		return err == nil
	})
	for _, req := range requests {
		statuses[req.Status]++
	}
	return statuses
}

// wantPaused waits until every request was due, and checks that no call was dialed too late. A
// request that was not dialed must be queued.
func (p *pauseTrial) wantPaused(t *testing.T) {
	t.Helper()
	time.Sleep(time.Until(p.allDue.Add(noDialAfter)))
	dials := p.dials(t)
	for to, at := range dials {
		if late := at[len(at)-1].Sub(p.pausedAt); late > noDialAfter {
			t.Errorf("%s was dialed %s after the response to the pause", to, late)
		}
	}
	t.Logf("dialed before the pause: %d of %d", len(dials), pausedRequests)
	if len(dials) >= pausedRequests {
		t.Fatalf("dials before the pause = %d, so the pause shows nothing", len(dials))
	}
	waiting := pausedRequests + 1 - len(dials) // the request of the number that opts out also waits
	sharedstack.Equal(t, "queued requests", p.open(t)["queued"], waiting)
}

// wantEachDialedOnce waits until every request has ended, and checks the number of dials of each
// request.
func (p *pauseTrial) wantEachDialedOnce(t *testing.T) {
	t.Helper()
	until(t, "every request ends", func() bool {
		open := p.open(t)
		return open["queued"] == 0 && open["dialing"] == 0
	})
	dials := p.dials(t)
	for _, to := range p.load.accepted {
		want := 1
		if to == p.live.To || to == p.optedOut.To {
			want = 0
		}
		if got := len(dials[to]); got != want {
			t.Errorf("dials of %s = %d, want %d", to, got, want)
		}
	}
}

// changeGates opts a number out and closes the calling window of a workspace, while their call
// requests wait for the end of the pause.
func (p *pauseTrial) changeGates(t *testing.T) {
	t.Helper()
	out := map[string]any{"phone_e164": p.optedOut.To}
	if err := p.w.API.Into(t.Context(), http.MethodPost, "/v1/opt-outs", out, http.StatusOK, nil); err != nil {
		t.Fatal(err)
	}
	if !p.everything {
		return
	}
	hour := (time.Now().UTC().Hour() + 6) % 24
	window := map[string]any{"start": fmt.Sprintf("%02d:00", hour), "end": fmt.Sprintf("%02d:00", hour+1)}
	policy := map[string]any{"calling_policy": map[string]any{"window": window, "timezone": "UTC"}}
	path := "/admin/v1/workspaces/" + p.shut.ID
	if err := p.shut.Admin.Into(t.Context(), http.MethodPatch, path, policy, http.StatusOK, nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the window is closed", func() bool {
		var preview struct{ Result string }
		to := map[string]any{"to": p.blocked.To}
		err := p.shut.API.Into(t.Context(), http.MethodPost, "/v1/decisions/preview", to, http.StatusOK, &preview)
		return err == nil && preview.Result == "closed"
	})
}

// wantGatesObeyed checks the requests whose gates changed during the pause.
func (p *pauseTrial) wantGatesObeyed(t *testing.T) {
	t.Helper()
	wantBlocked(t, p.w, p.optedOut, "recipient_dnd")
	if !p.everything {
		return
	}
	wantBlocked(t, p.shut, p.blocked, "outside_calling_hours")
	var waiting struct {
		Status       string    `json:"status"`
		ScheduledFor time.Time `json:"scheduled_for"`
	}
	path := "/v1/call-requests/" + p.waiting.ID
	until(t, "the waiting request is moved to the next window", func() bool {
		err := p.shut.API.Into(t.Context(), http.MethodGet, path, nil, http.StatusOK, &waiting)
		return err == nil && time.Until(waiting.ScheduledFor) > time.Hour
	})
	sharedstack.Equal(t, "status of the request that waits for the window", waiting.Status, "queued")
	if err := p.shut.API.Into(t.Context(), http.MethodPost, path+"/cancel", nil, http.StatusOK, nil); err != nil {
		t.Error(err)
	}
	var dialed []string
	log, err := p.CarrierLog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range log {
		if line.Kind == "originate" && (line.To == p.waiting.To || line.To == p.blocked.To) {
			dialed = append(dialed, line.To)
		}
	}
	sharedstack.Equal(t, "dialed numbers outside the window", len(dialed), 0)
}

func wantBlocked(t *testing.T, w *kit.Workspace, placed kit.Request, code string) {
	t.Helper()
	var req kit.Request
	until(t, "the request to "+placed.To+" ends", func() bool {
		var err error
		req, err = w.Request(t.Context(), placed.ID)
		return err == nil && req.Final()
	})
	sharedstack.Equal(t, "status of the request to "+placed.To, req.Status, "blocked")
	sharedstack.Equal(t, "error_code of the request to "+placed.To, sharedstack.Value(req.ErrorCode), code)
}
