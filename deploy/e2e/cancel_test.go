package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"ringfence.dev/deploy/e2e/rig"
)

// A race is run by lanes side by side; each looks for the instant of the dial by itself.
const (
	raceLanes  = 12
	raceRounds = 40
	raceCredit = "1000"
)

// raced is one request whose cancel met its dial.
type raced struct {
	id, to string
	status int
}

// TestCancel_RacingTheDialTellsTheTruth cancels several hundred requests around the instant of their dial, on two replicas of
// everything: who was answered 200 is never dialled, who was answered 409 goes on to an end of its own.
func TestCancel_RacingTheDialTellsTheTruth(t *testing.T) {
	rng, hooks := seeded(t), receiver(t)
	s := start(t, binaries(t), "RINGFENCE_REPLICAS=2", "SSL_CERT_FILE="+hooks.CAFile, "IDEMPOTENCY_LEASE=3s", "UNCONFIRMED_AFTER=5s")
	w := tenant(t, s, hooks, raceCredit)
	var mu sync.Mutex
	var all []raced
	var lanes sync.WaitGroup
	for lane := range raceLanes {
		own := rand.New(rand.NewPCG(rng.Uint64(), 2))
		lanes.Go(func() {
			done := race(t, own, w, 5_000_000+1000*lane)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, done...)
		})
	}
	lanes.Wait()
	accepted, answers := map[string]string{}, map[int]int{}
	for _, r := range all {
		accepted[r.id] = r.to
		answers[r.status]++
	}
	t.Logf("cancels answered %v", answers)
	if len(all) < raceLanes*raceRounds*9/10 || answers[200] < len(all)/5 || answers[409] < len(all)/5 {
		t.Errorf("%d cancels, answered %v: too few met the dial", len(all), answers)
	}
	judge(t, s, w, hooks, accepted)
	judgeCancels(t, s, w, all)
}

// race places one request after the other and cancels each after a pause that is drawn around the instant at which the last
// cancel came just too early or too late.
func race(t *testing.T, rng *rand.Rand, w *rig.Workspace, first int) (done []raced) {
	t.Helper()
	around := 5 * time.Millisecond
	posting := &load{w: w, accepted: map[string]string{}, answers: map[int]int{}}
	for n := range raceRounds {
		r := raced{to: number(first + n)}
		posting.place(t.Context(), r.to)
		if r.id = posting.id(r.to); r.id == "" {
			posting.check(t)
			return done
		}
		pause(t, time.Duration(float64(around)*(0.5+rng.Float64())))
		var answer []byte
		var err error
		if r.status, answer, err = w.API.Do(t.Context(), "POST", "/v1/call-requests/"+r.id+"/cancel", nil); err != nil {
			t.Error(err)
			return done
		}
		switch r.status {
		case 200:
			around = min(around*5/4, time.Second)
		case 409:
			around = max(around*4/5, 100*time.Microsecond)
		case 503: // the dialer did not answer in time: no promise was made
			continue
		default:
			t.Errorf("cancel of %s: %d %s, want 200 or 409", r.id, r.status, answer)
		}
		done = append(done, r)
	}
	return done
}

// judgeCancels holds every answer against how the request ended and against the carrier's own log.
func judgeCancels(t *testing.T, s *rig.Stack, w *rig.Workspace, all []raced) {
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
	ended := map[string]string{}
	for _, req := range requests {
		ended[req.ID] = req.Status
	}
	for _, r := range all {
		told := fmt.Sprintf("cancel of %s answered %d; it ended %s after %d dials", r.id, r.status, ended[r.id], dials[r.to])
		if r.status == 200 && (ended[r.id] != "canceled" || dials[r.to] != 0) {
			t.Errorf("%s, want canceled and none", told)
		}
		if r.status == 409 && (ended[r.id] != "completed" && ended[r.id] != "failed" || dials[r.to] != 1) {
			t.Errorf("%s, want an end of its own and one", told)
		}
	}
}
