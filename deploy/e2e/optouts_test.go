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

	"ringfence.dev/deploy/e2e/rig"
	"ringfence.dev/proto/questionv1"
)

const (
	optOutRaces  = 100_000
	optOutLanes  = 32
	answerIsGood = 2 * time.Second // law 2
)

// refusal is one person's opt-out or withdrawal of consent that met the dial of a call to them.
type refusal struct {
	id, to    string
	withdrawn bool
	// answered is when this machine had the answer: by then the record was committed.
	answered time.Time
}

// TestOptOut_RacingTheDialNobodyIsDialledBehindTheirRecord lets a hundred thousand people (one per cent unless RINGFENCE_TRIALS says more) opt out or withdraw around the
// instant at which they are dialled, on two replicas of everything: whoever's gate asked after the record was committed is not dialled.
func TestOptOut_RacingTheDialNobodyIsDialledBehindTheirRecord(t *testing.T) {
	rng := seeded(t)
	s := start(t, binaries(t), "RINGFENCE_REPLICAS=2")
	w := tenant(t, s, nil, "100000")
	race := refusing(t, s, w, rng, rig.Trials(optOutRaces))
	faults, dialled, behind := judgeRefusals(t, s, w, race)
	for _, fault := range faults {
		t.Error(fault)
	}
	t.Logf("%d people said no around their dial: %d were dialled (%d behind their record, by a gate that had asked before it), %d were not, %d faults",
		len(race), dialled, behind, len(race)-dialled, len(faults))
	if said, err := s.Command(t.Context(), "ledger"); err != nil || !strings.Contains(said, " 0 broken") {
		t.Errorf("the consent ledger behind two replicas: %v\n%s", err, said)
	}
	if dialled < len(race)/10 || dialled > len(race)*9/10 {
		t.Errorf("%d of %d were dialled: too few met the dial", dialled, len(race))
	}
}

// The race can be lost: with somebody in the gate's place who lets everybody through, the judge finds people who are dialled behind their
// record.
func TestOptOut_TheRaceIsLostWithoutTheGate(t *testing.T) {
	bin := binaries(t)
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer []byte
		if strings.HasSuffix(r.URL.Path, "/Check") {
			answer, _ = proto.Marshal(&questionv1.CheckResponse{Result: &questionv1.CheckResponse_Open{Open: &questionv1.Open{}}})
		}
		w.Header().Set("Content-Type", "application/proto")
		_, _ = w.Write(answer)
	}))
	t.Cleanup(gate.Close)
	s := start(t, bin, "RINGFENCE_DETOURS=dialer>contacts-compliance="+strings.TrimPrefix(gate.URL, "http://"))
	w := tenant(t, s, nil, "1000")
	race := refusing(t, s, w, seeded(t), 200)
	faults, dialled, behind := judgeRefusals(t, s, w, race)
	t.Logf("without a gate: %d of %d dialled, %d of them behind their record, %d faults", dialled, len(race), behind, len(faults))
	if dialled < len(race) || behind < len(race)/10 || len(faults) < behind {
		t.Errorf("%d of %d dialled, %d behind their record, %d faults: want all, many, and each of those found", dialled, len(race), behind, len(faults))
	}
}

// turning looks for the instant at which the dial is, counted from the POST's answer.
type turning struct {
	mu sync.Mutex
	at time.Duration
}

func (a *turning) shot(rng *rand.Rand) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Duration(float64(a.at) * (0.3 + 1.4*rng.Float64()))
}

func (a *turning) learn(late bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if late {
		a.at = max(a.at*9/10, time.Millisecond)
	} else {
		a.at = min(a.at*11/10, 2*time.Second)
	}
}

// refusing places calls and refuses each around its dial.
func refusing(t *testing.T, s *rig.Stack, w *rig.Workspace, rng *rand.Rand, trials int) (race []refusal) {
	t.Helper()
	aim := &turning{at: 30 * time.Millisecond}
	var mu sync.Mutex
	var lanes sync.WaitGroup
	for lane := range optOutLanes {
		own := rand.New(rand.NewPCG(rng.Uint64(), 3))
		lanes.Go(func() {
			api, admin := rig.NewClient(s.Demo.BaseURL, w.WriteKey), rig.NewClient(s.Demo.AdminURL, s.Demo.AdminToken)
			mine := *w
			mine.API = api
			for n := lane; n < trials && !t.Failed(); n += optOutLanes {
				r := refusal{to: number(6_000_000 + n), withdrawn: n/optOutLanes%2 == 1}
				if err := refuse(t, &mine, admin, &r, aim.shot(own)); err != nil {
					t.Error(err)
					return
				}
				after, err := mine.Request(t.Context(), r.id)
				if err != nil {
					t.Error(err)
					return
				}
				aim.learn(after.Status != "queued" && after.Status != "blocked")
				mu.Lock()
				race = append(race, r)
				mu.Unlock()
			}
		})
	}
	lanes.Wait()
	return race
}

func refuse(t *testing.T, w *rig.Workspace, admin *rig.Client, r *refusal, wait time.Duration) error {
	t.Helper()
	err := rig.Until(t.Context(), time.Minute, "POST for "+r.to+" is accepted", func() (bool, error) {
		status, answer, err := w.API.Do(t.Context(), "POST", "/v1/calls", map[string]any{"agent_id": w.AgentID, "to": r.to, "idempotency_key": r.to})
		if err != nil || status == http.StatusServiceUnavailable {
			return false, err
		}
		if status != http.StatusAccepted && status != http.StatusOK {
			return false, fmt.Errorf("POST for %s: %d %s", r.to, status, answer)
		}
		var req rig.Request
		err = json.Unmarshal(answer, &req)
		r.id = req.ID
		return true, err
	})
	if err != nil {
		return err
	}
	pause(t, wait)
	return rig.Until(t.Context(), time.Minute, "the refusal of "+r.to+" is answered", func() (bool, error) {
		client, method, path := w.API, "POST", "/v1/opt-outs"
		body := map[string]any{"phone_e164": r.to}
		if r.withdrawn {
			client, method, path = admin, "PUT", "/admin/v1/workspaces/"+w.ID+"/contacts/"+url.PathEscape(r.to)+"/consent"
			body = map[string]any{"status": "withdrawn", "source": "race"}
		}
		status, answer, err := client.Do(t.Context(), method, path, body)
		r.answered = time.Now()
		if err != nil || status == http.StatusServiceUnavailable {
			return false, err
		}
		if status != http.StatusOK {
			return false, fmt.Errorf("refusal of %s: %d %s, want 200", r.to, status, answer)
		}
		return true, nil
	})
}

// judged is what is known of one request when all is over.
type judged struct {
	status, code string
	dialedAt     *time.Time
	// opens are the instants at which the gate was asked and let the dial through; originates how often the carrier was.
	opens      []time.Time
	originates int
}

// judgeRefusals waits until every request has ended and holds each refusal against the decisions, the requests and the carrier's own log. behind counts
// who was dialled after the refusal was answered, be it right or wrong.
func judgeRefusals(t *testing.T, s *rig.Stack, w *rig.Workspace, race []refusal) (faults []string, dialled, behind int) {
	t.Helper()
	for _, status := range []string{"queued", "dialing"} {
		until(t, 5*time.Minute, "no request is "+status, func() bool {
			var left rig.Page[rig.Request]
			err := w.API.Into(t.Context(), "GET", "/v1/call-requests?limit=1&status="+status, nil, 200, &left)
			return err == nil && len(left.Data) == 0
		})
	}
	of, err := known(t, s, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range race {
		j := of[r.id]
		if j == nil {
			faults = append(faults, "request "+r.id+" is lost")
			continue
		}
		if j.originates > 0 {
			dialled++
		}
		if j.dialedAt != nil && j.dialedAt.After(r.answered) {
			behind++
		}
		if fault := r.judge(j); fault != "" {
			faults = append(faults, fmt.Sprintf("%s (%s, withdrawn %t, refused %s): %s: %+v", r.to, r.id, r.withdrawn, r.answered.UTC().Format(time.RFC3339Nano), fault, *j))
		}
	}
	return faults, dialled, behind
}

func (r refusal) judge(j *judged) string {
	want := "recipient_dnd"
	if r.withdrawn {
		want = "consent_withdrawn"
	}
	before := 0 // times the gate let it through before the refusal was answered
	for _, at := range j.opens {
		if at.After(r.answered) {
			return "the gate let a dial through that asked after the record was committed"
		}
		before++
	}
	switch {
	case j.originates > 1:
		return "dialled twice"
	case j.originates == 1 && before == 0:
		return "dialled, and no gate had said yes before"
	case j.originates == 1 && j.dialedAt != nil && j.dialedAt.After(r.answered.Add(answerIsGood)):
		return "dialled two seconds and more after the refusal was answered"
	case j.originates == 0 && (j.status != "blocked" || j.code != want):
		return "not dialled, and not blocked " + want
	case j.originates == 1 && j.status != "completed" && j.status != "failed":
		return "dialled, and it did not end"
	}
	return ""
}

// known gathers every request with its dials and its gate's answers.
func known(t *testing.T, s *rig.Stack, w *rig.Workspace) (map[string]*judged, error) {
	t.Helper()
	type request struct {
		ID        string     `json:"id"`
		Status    string     `json:"status"`
		To        string     `json:"to"`
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
	requests, err := rig.All(t.Context(), w.API, "/v1/call-requests", nil, func(r request) string { return r.ID })
	decisions, err2 := rig.All(t.Context(), w.Admin, "/admin/v1/workspaces/"+w.ID+"/decisions", nil, func(d decision) string { return d.ID })
	log, err3 := s.CarrierLog(t.Context())
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	of, byNumber := map[string]*judged{}, map[string]*judged{}
	for _, r := range requests {
		j := &judged{status: r.Status, dialedAt: r.DialedAt}
		if r.ErrorCode != nil {
			j.code = *r.ErrorCode
		}
		of[r.ID], byNumber[r.To] = j, j
	}
	for _, d := range decisions {
		if j := of[d.Request]; j != nil && d.Kind == "dial" && d.Result == "open" {
			j.opens = append(j.opens, d.JudgedAt)
		}
	}
	for _, line := range log {
		if j := byNumber[line.To]; j != nil && line.Kind == "originate" {
			j.originates++
		}
	}
	return of, nil
}
