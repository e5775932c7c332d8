package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

var terminal = map[string]string{
	"completed": "call.completed", "no_answer": "call.no_answer", "busy": "call.busy", "failed": "call.failed", "canceled": "call.failed",
}

// Verdict is the result of Judge. It lists the faults that break a guarantee of
// docs/architecture.md.
type Verdict struct {
	Requests, Dials, Calls, Deliveries int
	ByStatus                           map[string]int
	Faults                             []string
}

func (v *Verdict) fault(format string, args ...any) {
	if len(v.Faults) < 40 {
		v.Faults = append(v.Faults, fmt.Sprintf(format, args...))
	}
}

// Err returns an error that lists the faults, or nil.
func (v *Verdict) Err() error {
	if v == nil || len(v.Faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(v.Faults, "\n"))
}

func (v *Verdict) String() string {
	return fmt.Sprintf("requests %d %v, dials %d, calls %d, deliveries %d, faults %d",
		v.Requests, v.ByStatus, v.Dials, v.Calls, v.Deliveries, len(v.Faults))
}

// Judge waits until every call request has ended and every event has arrived. It checks that no
// request was dialed twice, that no event is lost, and that the charges agree with the talk times.
//
// accepted maps the id of each accepted call request to its number, which must be unique. credit is
// the sum of the top-ups.
func (s *Stack) Judge(ctx context.Context, w *Workspace, r *Receiver, accepted map[string]string, credit float64, within time.Duration) (*Verdict, error) {
	v := &Verdict{ByStatus: map[string]int{}}
	requests, err := s.settle(ctx, w, accepted, within)
	if err != nil {
		return nil, err
	}
	v.Requests = len(requests)
	for _, req := range requests {
		v.ByStatus[req.Status]++
	}
	calls, err := All(ctx, w.API, "/v1/calls", nil, func(c lightCall) string { return c.ID })
	if err != nil {
		return nil, err
	}
	v.Calls = len(calls)
	if err := s.judgeDials(ctx, v, accepted, requests); err != nil {
		return nil, err
	}
	err = Until(ctx, within, "every terminal event arrives", func() (bool, error) {
		return len(missingTerminals(calls, r.Deliveries(w.ID))) == 0, nil
	})
	if err != nil {
		v.fault("%v: missing %v", err, missingTerminals(calls, r.Deliveries(w.ID)))
	}
	judgeEvents(v, calls, r.Deliveries(w.ID))
	var wrong []string
	// moneyFaults reads the calls with GET, because a charge can be stored after the terminal event.
	err = Until(ctx, within, "charges and wallet agree", func() (bool, error) {
		wrong, err = moneyFaults(ctx, w, calls, credit)
		return len(wrong) == 0, err
	})
	for _, fault := range wrong {
		v.fault("%s", fault)
	}
	if len(wrong) > 0 {
		return v, nil
	}
	return v, err
}

type lightCall struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	To     string `json:"to"`
}

func (s *Stack) settle(ctx context.Context, w *Workspace, accepted map[string]string, within time.Duration) ([]Request, error) {
	var requests []Request
	open := ""
	err := Until(ctx, within, "every request ends", func() (bool, error) {
		var err error
		if requests, err = w.Requests(ctx); err != nil {
			return false, nil //nolint:nilerr // a service can still be starting, so try again
		}
		open = ""
		seen := map[string]bool{}
		for _, req := range requests {
			seen[req.ID] = true
			if !req.Final() {
				open += " " + req.ID + "=" + req.Status
			}
		}
		for id := range accepted {
			if !seen[id] {
				return false, fmt.Errorf("request %s was answered 202 and is lost", id)
			}
		}
		var wallet struct {
			Held json.Number `json:"held"`
		}
		if err := w.Admin.Into(ctx, "GET", "/admin/v1/workspaces/"+w.ID+"/wallet", nil, 200, &wallet); err != nil {
			return false, nil //nolint:nilerr // a service can still be starting, so try again
		}
		if held, _ := wallet.Held.Float64(); held != 0 {
			open += " held=" + wallet.Held.String()
		}
		return open == "", nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w; open:%s", err, open)
	}
	return requests, nil
}

func (s *Stack) judgeDials(ctx context.Context, v *Verdict, accepted map[string]string, requests []Request) error {
	log, err := s.CarrierLog(ctx)
	if err != nil {
		return err
	}
	mine := map[string]bool{}
	for _, to := range accepted {
		mine[to] = true
	}
	byNumber := map[string]int{}
	for _, line := range log {
		if line.Kind == "originate" && mine[line.To] {
			v.Dials++
			if byNumber[line.To]++; byNumber[line.To] == 2 {
				v.fault("at-most-once dialing: the carrier received two originates for %s", line.To)
			}
		}
	}
	for _, req := range requests {
		if undialed := req.Status == "canceled" || req.Status == "blocked"; undialed && byNumber[req.To] > 0 {
			v.fault("at-most-once dialing: request %s is %s and %s was dialed", req.ID, req.Status, req.To)
		}
	}
	return nil
}

func missingTerminals(calls []lightCall, got []Delivery) []string {
	ended := map[string]bool{}
	for _, d := range got {
		ended[d.CallID+d.Type] = true
	}
	var missing []string
	for _, c := range calls {
		want, final := terminal[c.Status]
		if !final {
			missing = append(missing, c.ID+" is still "+c.Status)
		} else if !ended[c.ID+want] {
			missing = append(missing, c.ID+" "+want)
		}
	}
	return missing
}

func judgeEvents(v *Verdict, calls []lightCall, got []Delivery) {
	v.Deliveries = len(got)
	status := map[string]string{}
	for _, c := range calls {
		status[c.ID] = c.Status
	}
	events := map[string]map[string]bool{} // call id → ids of the call's terminal events
	for _, d := range got {
		if !d.Signed {
			v.fault("delivery %s is not signed", d.DeliveryID)
		}
		if d.Type == "webhook.test" {
			continue // the event does not belong to a call
		}
		for _, t := range terminal {
			if d.Type == t {
				if events[d.CallID] == nil {
					events[d.CallID] = map[string]bool{}
				}
				events[d.CallID][d.EventID] = true
				break
			}
		}
		if status[d.CallID] == "" {
			v.fault("an event names call %s, which the API does not know", d.CallID)
		}
	}
	for call, ids := range events {
		if len(ids) > 1 {
			v.fault("every request ends: call %s has %d terminal events", call, len(ids))
		}
	}
}

// moneyFaults compares the charge of each call with the call's talk time, and the balance with the
// charges.
func moneyFaults(ctx context.Context, w *Workspace, calls []lightCall, credit float64) (faults []string, err error) {
	charged := int64(0)
	for _, c := range calls {
		full, err := w.Call(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		micro := toMicro(full.CreditsCharged)
		if c.Status != "completed" && micro != 0 {
			faults = append(faults, fmt.Sprintf("exact money: call %s is %s and was charged", c.ID, c.Status))
		}
		if full.Status == "completed" && full.Timings.TalkSeconds != nil && *full.Timings.TalkSeconds > 0 && micro == 0 {
			faults = append(faults, fmt.Sprintf("exact money: call %s talked %d s and was not charged", c.ID, *full.Timings.TalkSeconds))
		}
		charged += micro
	}
	var wallet struct {
		Balance json.Number `json:"balance"`
	}
	if err := w.API.Into(ctx, "GET", "/v1/wallet", nil, 200, &wallet); err != nil {
		return nil, err
	}
	if want := int64(credit*1e6) - charged; toMicro(wallet.Balance) != want {
		faults = append(faults, fmt.Sprintf("exact money: the balance is %s, credit %v less charges of %d micro-credits is %d", wallet.Balance, credit, charged, want))
	}
	differences, err := w.Differences(ctx)
	for _, difference := range differences {
		faults = append(faults, "exact money: the wallet differs from the ledger or the charges: "+difference)
	}
	return faults, err
}

func toMicro(n json.Number) int64 {
	f, err := strconv.ParseFloat(n.String(), 64)
	if err != nil {
		return 0
	}
	if f < 0 {
		return int64(f*1e6 - 0.5)
	}
	return int64(f*1e6 + 0.5)
}
