package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const (
	optOutRaces = 100_000
	// The trials are divided among several workspaces, so that they do not all wait for the lock of
	// one consent log or wallet.
	optOutHouses = 8
	optOutLanes  = 8               // the number of concurrent trials in each workspace
	answerIsGood = 2 * time.Second // the time for which the result of a dial-time check is valid
)

// refusal is an opt-out or a withdrawal of consent at the time of a dial to the same number.
type refusal struct {
	house     int
	id, to    string
	withdrawn bool
	// answered is the time of the response. The record was committed before this time.
	answered time.Time
}

// TestOptOut_NoDialAfterItIsRecorded races opt-outs and withdrawals of consent against dials, with
// two replicas of each service. If the dial-time check ran after the commit of the record, the
// person must not be dialed.
func TestOptOut_NoDialAfterItIsRecorded(t *testing.T) {
	rng, bin := sharedstack.Seeded(t, 1), binaries(t)
	s := start(t, bin, "RINGFENCE_REPLICAS=2", "SIMULATOR_TIME_SCALE=0", "LOG_LEVEL=warn")
	trials := sharedstack.Trials(optOutRaces/100, optOutRaces)
	run := &refusing{t: t, s: s, progress: newProgress("refusals racing dials", trials),
		aim: delayEstimate{at: 30 * time.Millisecond}}
	for range optOutHouses {
		run.houses = append(run.houses, tenant(t, s, nil, "100000"))
	}
	run.race(rng, trials, optOutLanes)
	if t.Failed() {
		return
	}
	began := time.Now()
	faults, dialed, dialedAfter := judgeRefusals(t, s, run)
	for _, fault := range faults {
		t.Error(fault)
	}
	t.Logf("%d people refused at the time of their dial: %d were dialed (%d of them after the record, because the "+
		"check ran before it), %d were not, %d faults",
		len(run.done), dialed, dialedAfter, len(run.done)-dialed, len(faults))
	t.Logf("raced for %s in %d workspaces, judged for %s", run.took.Round(time.Second), len(run.houses), time.Since(began).Round(time.Second))
	if output, err := s.Command(t.Context(), "service", "contacts-compliance", "verify"); err != nil {
		t.Errorf("the consent ledger behind two replicas: Command: %v", err)
	} else if !strings.Contains(output, " 0 broken") {
		t.Errorf(`the consent ledger behind two replicas: output = %q, want it to contain " 0 broken"`, output)
	}
	if dialed < len(run.done)/10 {
		t.Errorf("dialed = %v, want at least %v", dialed, len(run.done)/10)
	} else if dialed > len(run.done)*9/10 {
		t.Errorf("dialed = %v, want at most %v", dialed, len(run.done)*9/10)
	}
}

// This test shows that the trial can fail. It replaces the dial-time check by a check that permits
// every dial. The trial must then find persons who are dialed after their opt-out or withdrawal.
func TestOptOut_MissingDialTimeCheckIsDetected(t *testing.T) {
	bin := binaries(t)
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer []byte
		if strings.HasSuffix(r.URL.Path, "/Check") {
			answer, _ = proto.Marshal(&compliancev1.CheckResponse{Result: &compliancev1.CheckResponse_Open{Open: &compliancev1.Open{}}})
		}
		w.Header().Set("Content-Type", "application/proto")
		_, _ = w.Write(answer)
	}))
	t.Cleanup(gate.Close)
	s := start(t, bin, "RINGFENCE_DETOURS=dialer>contacts-compliance="+strings.TrimPrefix(gate.URL, "http://"))
	const trials = 200
	run := &refusing{t: t, s: s, progress: newProgress("refusals without the dial-time check", trials),
		aim: delayEstimate{at: 30 * time.Millisecond}}
	run.houses = append(run.houses, tenant(t, s, nil, "1000"))
	run.race(sharedstack.Seeded(t, 1), trials, 32)
	faults, dialed, dialedAfter := judgeRefusals(t, s, run)
	t.Logf("without the check: %d of %d dialed, %d of them after the record, %d faults", dialed, trials, dialedAfter,
		len(faults))
	if dialed < trials {
		t.Errorf("dialed = %v, want at least %v", dialed, trials)
	}
	if dialedAfter < trials/10 {
		t.Errorf("behind = %v, want at least %v", dialedAfter, trials/10)
	}
	if len(faults) < dialedAfter {
		t.Errorf("length of faults = %v, want at least %v", len(faults), dialedAfter)
	}
}

// delayEstimate estimates the delay between the response to the POST and the dial. The opt-outs and
// withdrawals are sent after this delay.
type delayEstimate struct {
	mu sync.Mutex
	at time.Duration
}

func (a *delayEstimate) shot(rng *rand.Rand) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Duration(float64(a.at) * (0.3 + 1.4*rng.Float64()))
}

func (a *delayEstimate) learn(late bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if late {
		a.at = max(a.at*9/10, time.Millisecond)
	} else {
		a.at = min(a.at*11/10, 2*time.Second)
	}
}

type refusing struct {
	t        *testing.T
	s        *kit.Stack
	houses   []*kit.Workspace
	progress *progress
	aim      delayEstimate
	took     time.Duration
	mu       sync.Mutex
	done     []refusal
}

// race sends the opt-out or withdrawal of each trial at about the time of the dial. The parameter
// lanes is the number of concurrent trials in each workspace.
func (run *refusing) race(rng *rand.Rand, trials, lanes int) {
	run.t.Helper()
	began := time.Now()
	lanes *= len(run.houses)
	var all sync.WaitGroup
	for lane := range lanes {
		own := rand.New(rand.NewPCG(rng.Uint64(), 3))
		all.Go(func() {
			for n := lane; n < trials && !run.t.Failed(); n += lanes {
				if err := run.trial(n, lane, own); err != nil {
					run.t.Error(err)
				}
			}
		})
	}
	all.Wait()
	run.took = time.Since(began)
}

// On average, one in readOneIn call requests is read immediately after its opt-out or withdrawal.
// Its status shows whether the dial was earlier or later.
const readOneIn = 4

func (run *refusing) trial(n, lane int, own *rand.Rand) error {
	house := lane % len(run.houses)
	w := run.houses[house]
	r := refusal{house: house, to: number(6_000_000 + n), withdrawn: own.IntN(2) == 1}
	if err := refuse(run.t, w, &r, run.aim.shot(own)); err != nil {
		return err
	}
	if own.IntN(readOneIn) == 0 {
		after, err := w.Request(run.t.Context(), r.id)
		if err != nil {
			return err
		}
		run.aim.learn(after.Status != "queued" && after.Status != "blocked")
	}
	run.mu.Lock()
	run.done = append(run.done, r)
	run.mu.Unlock()
	run.progress.add(1)
	return nil
}

func refuse(t *testing.T, w *kit.Workspace, r *refusal, wait time.Duration) error {
	t.Helper()
	err := kit.Until(t.Context(), kit.HangTimeout, "POST for "+r.to+" is accepted", func() (bool, error) {
		status, answer, err := w.API.Do(t.Context(), "POST", "/v1/calls", map[string]any{"agent_id": w.AgentID, "to": r.to, "idempotency_key": r.to})
		if err != nil || status == http.StatusServiceUnavailable {
			return false, err
		}
		if status != http.StatusAccepted && status != http.StatusOK {
			return false, fmt.Errorf("POST for %s: %d %s", r.to, status, answer)
		}
		var req kit.Request
		err = json.Unmarshal(answer, &req)
		r.id = req.ID
		return true, err
	})
	if err != nil {
		return err
	}
	pause(t, wait)
	return kit.Until(t.Context(), kit.HangTimeout, "the refusal of "+r.to+" is answered", func() (bool, error) {
		client, method, path := w.API, "POST", "/v1/opt-outs"
		body := map[string]any{"phone_e164": r.to}
		if r.withdrawn {
			client, method, path = w.Admin, "PUT", "/admin/v1/workspaces/"+w.ID+"/contacts/"+url.PathEscape(r.to)+"/consent"
			body = map[string]any{"status": "withdrawn", "source": "race"}
		}
		status, answer, err := client.Do(t.Context(), method, path, body)
		r.answered = time.Now()
		if err != nil || status == http.StatusServiceUnavailable {
			return false, err
		}
		if status != http.StatusOK {
			return false, fmt.Errorf("opt-out or withdrawal of %s: %d %s, want 200", r.to, status, answer)
		}
		return true, nil
	})
}

type judged struct {
	status, code string
	dialedAt     *time.Time
	// opens contains the times of the checks that permitted the dial.
	opens      []time.Time
	originates int
}

// judgeRefusals compares each refusal with the stored decisions, the call requests and the
// carrier's log. dialedAfter is the number of dials after the response to a refusal.
func judgeRefusals(t *testing.T, s *kit.Stack, run *refusing) (faults []string, dialed, dialedAfter int) {
	t.Helper()
	of := make([]map[string]*judged, len(run.houses))
	var all sync.WaitGroup
	for house, w := range run.houses {
		all.Go(func() { of[house] = awaitRequests(t, w) })
	}
	all.Wait()
	log, err := s.CarrierLog(t.Context())
	if err != nil {
		t.Fatalf("read the carrier's log: %v", err)
	}
	if t.Failed() {
		t.Fatal("reading the call requests failed, see above")
	}
	originates := map[string]int{}
	for _, line := range log {
		if line.Kind == "originate" {
			originates[line.To]++
		}
	}
	for _, r := range run.done {
		j := of[r.house][r.id]
		if j == nil {
			faults = append(faults, "request "+r.id+" is lost")
			continue
		}
		if j.originates = originates[r.to]; j.originates > 0 {
			dialed++
		}
		if j.dialedAt != nil && j.dialedAt.After(r.answered) {
			dialedAfter++
		}
		if fault := r.judge(j); fault != "" {
			faults = append(faults, fmt.Sprintf("%s (%s, withdrawn %t, refused %s): %s: %+v", r.to, r.id, r.withdrawn, r.answered.UTC().Format(time.RFC3339Nano), fault, *j))
		}
	}
	return faults, dialed, dialedAfter
}

func (r refusal) judge(j *judged) string {
	want := "recipient_dnd"
	if r.withdrawn {
		want = "consent_withdrawn"
	}
	before := 0 // the number of checks that permitted the dial before the response to the refusal
	for _, at := range j.opens {
		if at.After(r.answered) {
			return "the dial-time check permitted a dial after the record was committed"
		}
		before++
	}
	switch {
	case j.originates > 1:
		return "dialed twice"
	case j.originates == 1 && before == 0:
		return "dialed, and no gate had said yes before"
	case j.originates == 1 && j.dialedAt != nil && j.dialedAt.After(r.answered.Add(answerIsGood)):
		return "dialed two seconds and more after the refusal was answered"
	case j.originates == 0 && (j.status != "blocked" || j.code != want):
		return "not dialed, and not blocked " + want
	case j.originates == 1 && j.status != "completed" && j.status != "failed":
		return "dialed, and it did not end"
	}
	return ""
}

// awaitRequests waits until every call request of a workspace has ended, and returns the call
// requests with their decisions.
func awaitRequests(t *testing.T, w *kit.Workspace) map[string]*judged {
	t.Helper()
	type request struct {
		ID        string     `json:"id"`
		Status    string     `json:"status"`
		ErrorCode *string    `json:"error_code"`
		DialedAt  *time.Time `json:"dialed_at"`
	}
	type decision struct {
		ID       string    `json:"id"`
		Request  string    `json:"call_request_id"`
		Kind     string    `json:"kind"`
		Result   string    `json:"result"`
		JudgedAt time.Time `json:"judged_at"`
	}
	err := kit.Until(t.Context(), kit.HangTimeout, "no request waits or is dialed", func() (bool, error) {
		left := 0
		for _, status := range []string{"queued", "dialing"} {
			var page kit.Page[kit.Request]
			if err := w.API.Into(t.Context(), "GET", "/v1/call-requests?limit=1&status="+status, nil, 200, &page); err != nil {
				return false, err
			}
			left += len(page.Data)
		}
		return left == 0, nil
	})
	requests, err2 := kit.All(t.Context(), w.API, "/v1/call-requests", nil, func(r request) string { return r.ID })
	decisions, err3 := kit.All(t.Context(), w.Admin, "/admin/v1/workspaces/"+w.ID+"/decisions", nil, func(d decision) string { return d.ID })
	if err := errors.Join(err, err2, err3); err != nil {
		t.Error(err)
	}
	of := map[string]*judged{}
	for _, r := range requests {
		j := &judged{status: r.Status, dialedAt: r.DialedAt}
		if r.ErrorCode != nil {
			j.code = *r.ErrorCode
		}
		of[r.ID] = j
	}
	for _, d := range decisions {
		if j := of[d.Request]; j != nil && d.Kind == "dial" && d.Result == "open" {
			j.opens = append(j.opens, d.JudgedAt)
		}
	}
	return of
}
