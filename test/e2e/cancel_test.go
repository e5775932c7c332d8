package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const (
	races      = 10_000
	raceLanes  = 20
	raceCredit = "10000"
)

type manner int

const (
	atOnce    manner = iota // due immediately, one cancel
	scheduled               // due after a second, canceled at about that time
	twice                   // two concurrent cancels on two connections
	impatient               // the client aborts the first cancel before its response, and repeats it
	manners
)

func (m manner) String() string {
	return [...]string{"due at once", "scheduled", "canceled twice", "broken off and retried"}[m]
}

// raced is one call request. Its cancels and its dial happen at about the same time.
type raced struct {
	id, to  string
	manner  manner
	answers []int
	// unanswered is true if a cancel had status 503 or no response. The effect of such a cancel is
	// unknown.
	unanswered bool
}

func (r raced) count(status int) (n int) {
	for _, answer := range r.answers {
		if answer == status {
			n++
		}
	}
	return n
}

// TestCancel_ResponseMatchesWhetherTheCallIsDialed cancels requests at the time of their dial, with
// two replicas of each service. A request must be dialed if its cancel had status 409, and must not
// be dialed if it had status 200.
func TestCancel_ResponseMatchesWhetherTheCallIsDialed(t *testing.T) {
	rng, hooks := sharedstack.Seeded(t, 1), receiver(t)
	s := start(t, binaries(t), "RINGFENCE_REPLICAS=2", "SSL_CERT_FILE="+hooks.CAFile, "IDEMPOTENCY_LEASE=3s", "UNCONFIRMED_AFTER=5s")
	w := tenant(t, s, hooks, raceCredit)
	trials := sharedstack.Trials(races/100, races)
	run := racing{t: t, s: s, w: w, progress: newProgress("cancels racing dials", trials)}
	for m := range run.aims {
		run.aims[m] = aim{at: firstAim}
	}
	var lanes sync.WaitGroup
	for lane := range raceLanes {
		own, first := rand.New(rand.NewPCG(rng.Uint64(), 2)), 5_000_000+1000*lane
		lanes.Go(func() { run.lane(own, first, (trials+raceLanes-1)/raceLanes) })
	}
	lanes.Wait()
	if t.Failed() {
		return
	}
	accepted := map[string]string{}
	for _, r := range run.done {
		accepted[r.id] = r.to
	}
	v, err := s.Judge(t.Context(), w, hooks, accepted, 10_000, kit.HangTimeout)
	if err != nil {
		t.Errorf("Judge: %v", err)
	} else if v.Err() != nil {
		t.Errorf("v.Err() = %v, want nil", v.Err())
	}
	t.Log(v)
	judgeCancels(t, s, w, run.done)
}

type racing struct {
	t        *testing.T
	s        *kit.Stack
	w        *kit.Workspace
	progress *progress
	mu       sync.Mutex
	done     []raced
	aims     [manners]aim
}

// aim estimates the delay between the due time of a call request and its dial. Cancels are sent
// after this delay. All goroutines share one aim for each manner, which is a way to cancel.
type aim struct {
	at, step time.Duration
	late     bool // the last cancel was too late
	// timely is the number of cancels before the dial, and tardy the number of cancels after the
	// dial.
	timely, tardy int
}

const (
	firstAim = 40 * time.Millisecond
	leastAim = -100 * time.Millisecond
	mostAim  = 2 * time.Second
)

func (a *aim) shot(rng *rand.Rand) time.Duration {
	spread := 5*time.Millisecond + a.at.Abs()/2
	return a.at + time.Duration((2*rng.Float64()-1)*float64(spread))
}

// learn moves the estimate: to an earlier time if the last cancel was too late, otherwise to a
// later time. The step grows while the result stays the same, and shrinks when the result changes.
func (a *aim) learn(late bool) {
	a.step = min(max(a.step*3/2, 2*time.Millisecond), 50*time.Millisecond)
	if late != a.late {
		a.step = max(a.step/3, 2*time.Millisecond)
	}
	a.late = late
	if late {
		a.tardy++
		a.at = max(a.at-a.step, leastAim)
	} else {
		a.timely++
		a.at = min(a.at+a.step, mostAim)
	}
}

// oneSided reports whether one way to cancel was almost always before the dial, or almost always
// after it.
func (run *racing) oneSided() bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	for _, a := range run.aims {
		if min(a.timely, a.tardy) < 1+(a.timely+a.tardy)/6 {
			return true
		}
	}
	return false
}

// lane runs the trials of one goroutine. It ends when each way to cancel has had enough cancels
// before the dial and enough after the dial, or after a maximum number of rounds.
func (run *racing) lane(rng *rand.Rand, first, rounds int) {
	posting, canceling := kit.NewClient(run.s.Demo.BaseURL, run.w.WriteKey), [2]*kit.Client{}
	for i := range canceling {
		// Each client has its own connection, which leads to one of the replicas.
		canceling[i] = kit.NewClient(run.s.Demo.BaseURL, run.w.WriteKey)
	}
	for n := 0; n < rounds || n < min(6*rounds, 1000) && run.oneSided(); n++ {
		r := raced{to: number(first + n), manner: manner((n + first/1000) % int(manners))}
		due, err := run.post(posting, &r)
		if err == nil {
			run.mu.Lock()
			shot := run.aims[r.manner].shot(rng)
			run.mu.Unlock()
			pause(run.t, time.Until(due.Add(shot)))
			err = run.cancel(canceling, &r, rng)
		}
		if err != nil {
			run.t.Error(err)
		}
		if run.t.Failed() {
			return
		}
		run.mu.Lock()
		run.done = append(run.done, r)
		run.aims[r.manner].learn(r.count(http.StatusOK) == 0)
		run.mu.Unlock()
		run.progress.add(1)
	}
}

// post returns the time at which the call request is due, by the clock of this machine.
func (run *racing) post(client *kit.Client, r *raced) (due time.Time, err error) {
	body := map[string]any{"agent_id": run.w.AgentID, "to": r.to, "idempotency_key": "race-" + r.to}
	if r.manner == scheduled {
		due = time.Now().Add(time.Second).Truncate(time.Millisecond)
		body["scheduled_for"] = due.UTC().Format(time.RFC3339Nano)
	}
	err = kit.Until(run.t.Context(), kit.HangTimeout, "POST for "+r.to+" is accepted", func() (bool, error) {
		status, answer, err := client.Do(run.t.Context(), "POST", "/v1/calls", body)
		switch {
		case err != nil:
			return false, err
		case status == 503:
			return false, nil
		case status != 202 && status != 200:
			return false, fmt.Errorf("POST for %s: %d %s", r.to, status, answer)
		}
		var req kit.Request
		err = json.Unmarshal(answer, &req)
		r.id = req.ID
		return true, err
	})
	if due.IsZero() {
		due = time.Now()
	}
	return due, err
}

func (run *racing) cancel(clients [2]*kit.Client, r *raced, rng *rand.Rand) error {
	switch r.manner {
	case twice:
		var statuses [2]int
		var silent [2]bool
		var errs [2]error
		var both sync.WaitGroup
		for i, client := range clients {
			both.Go(func() { statuses[i], silent[i], errs[i] = run.repeatCancel(run.t.Context(), client, r.id) })
		}
		both.Wait()
		r.answers, r.unanswered = statuses[:], silent[0] || silent[1]
		return errors.Join(errs[:]...)
	case impatient:
		ctx, cancel := context.WithTimeout(run.t.Context(), time.Duration(rng.Int64N(int64(15*time.Millisecond))))
		defer cancel()
		status, silent, err := run.repeatCancel(ctx, clients[0], r.id)
		if err == nil {
			r.answers = append(r.answers, status)
		}
		r.unanswered = silent || err != nil
	}
	status, silent, err := run.repeatCancel(run.t.Context(), clients[1], r.id)
	r.answers, r.unanswered = append(r.answers, status), r.unanswered || silent
	return err
}

// repeatCancel repeats a cancel after a 503 until ctx ends. had503 is true if there was a 503.
func (run *racing) repeatCancel(ctx context.Context, client *kit.Client, id string) (status int, had503 bool,
	err error) {
	err = kit.Until(ctx, kit.HangTimeout, "the cancel is answered", func() (bool, error) {
		var answer []byte
		if status, answer, err = client.Do(ctx, "POST", "/v1/call-requests/"+id+"/cancel", nil); err != nil {
			return false, err
		}
		switch status {
		case http.StatusOK, http.StatusConflict:
			return true, nil
		case http.StatusServiceUnavailable: // the dialer did not respond in time, so the effect is unknown
			had503 = true
			return false, nil
		}
		return false, fmt.Errorf("cancel of %s: %d %s, want 200 or 409", id, status, answer)
	})
	return status, had503, err
}

// judgeCancels compares every response with the final status of the call request and with the
// carrier's log. Every manner must have had cancels both before and after the dial.
func judgeCancels(t *testing.T, s *kit.Stack, w *kit.Workspace, all []raced) {
	t.Helper()
	log, err := s.CarrierLog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dials := map[string]int{}
	for _, line := range log {
		if line.Kind == "originate" {
			dials[line.To]++
		}
	}
	requests, err := w.Requests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := map[string]kit.Request{}
	for _, req := range requests {
		ended[req.ID] = req
	}
	var canceled, dialed [manners]int
	for _, r := range all {
		if fault := judgeCancel(r, ended[r.id].Status, dials[r.to]); fault != "" {
			t.Errorf("%s, %s: cancels were answered %v; it ended %s after %d dials: %s", r.id, r.manner, r.answers, ended[r.id].Status, dials[r.to], fault)
		}
		if ended[r.id].Status == "canceled" {
			canceled[r.manner]++
		} else {
			dialed[r.manner]++
		}
	}
	t.Logf("%d cancels raced a dial on two replicas; canceled/dialed: %s", len(all), shares(canceled, dialed))
	for m := range manners {
		if sum := canceled[m] + dialed[m]; min(canceled[m], dialed[m]) < max(1, sum/8) {
			t.Errorf("min(canceled[m], dialed[m]) = %v, want at least %v", min(canceled[m], dialed[m]), max(1, sum/8))
		} else if sum < len(all)/5 {
			t.Errorf("sum = %v, want at least %v", sum, len(all)/5)
		}
	}
}

func shares(canceled, dialed [manners]int) (text string) {
	for m := range manners {
		text += fmt.Sprintf("%s %d/%d, ", m, canceled[m], dialed[m])
	}
	return text[:max(0, len(text)-2)]
}

func judgeCancel(r raced, ended string, dials int) (fault string) {
	yes := r.count(http.StatusOK)
	switch {
	case yes > 0 && (ended != "canceled" || dials != 0):
		return "a cancel returned 200, but the request was dialed or did not become canceled"
	case yes > 1:
		return "two cancels of one request succeeded"
	case ended == "canceled" && dials != 0:
		return "a canceled request was dialed"
	case yes == 0 && ended == "canceled" && !r.unanswered:
		return "a cancel returned 409, but no other cancel succeeded"
	case ended != "canceled" && ended != "completed" && ended != "failed":
		return "the request did not complete, fail or become canceled"
	case ended != "canceled" && dials != 1:
		return "it was to be dialed once"
	}
	return ""
}

func TestJudgeCancel_ReportsWrongResponses(t *testing.T) {
	tests := []struct {
		name  string
		race  raced
		ended string
		dials int
		fault bool
	}{
		{"200 and canceled", raced{answers: []int{200}}, "canceled", 0, false},
		{"409 and dialed", raced{answers: []int{409}}, "completed", 1, false},
		{"200 to one of two cancels, and canceled", raced{answers: []int{409, 200}}, "canceled", 0, false},
		{"409 after an unanswered cancel, and canceled", raced{answers: []int{409}, unanswered: true}, "canceled", 0, false},
		{"200, canceled and dialed", raced{answers: []int{200}}, "canceled", 1, true},
		{"200 and dialed", raced{answers: []int{200}}, "completed", 1, true},
		{"200 and still queued", raced{answers: []int{200}}, "queued", 0, true},
		{"200 to both cancels", raced{answers: []int{200, 200}}, "canceled", 0, true},
		{"409 and canceled", raced{answers: []int{409}}, "canceled", 0, true},
		{"409 and not dialed", raced{answers: []int{409}}, "failed", 0, true},
		{"409 and dialed twice", raced{answers: []int{409}}, "completed", 2, true},
		{"409 and still queued", raced{answers: []int{409}}, "queued", 0, true},
	}
	for _, test := range tests {
		if fault := judgeCancel(test.race, test.ended, test.dials); (fault != "") != test.fault {
			t.Errorf("%s: %q, want a fault: %v", test.name, fault, test.fault)
		}
	}
}
