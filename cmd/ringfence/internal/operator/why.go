package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

type callsWhy struct {
	Of string `arg:"" name:"request-call-or-number" help:"Id of a call request or of a call, or a number: +14155550100."`
}

// requestState contains the fields of a call request that `calls why` reads.
type requestState struct {
	ID, Status   string
	AgentID      string    `json:"agent_id"`
	CallID       *string   `json:"call_id"`
	ScheduledFor time.Time `json:"scheduled_for"`
	ErrorCode    *string   `json:"error_code"`
	ErrorDetail  *string   `json:"error_detail"`
}

// isDue reports whether the request is queued and its scheduled time has passed.
func (a requestState) isDue(now time.Time) bool {
	return a.Status == "queued" && a.ErrorCode == nil && !a.ScheduledFor.After(now)
}

// explain returns a sentence that explains the state of the request. due is the printed form of
// ScheduledFor.
func (a requestState) explain(now time.Time, due string) string {
	switch {
	case a.ErrorCode != nil && a.CallID == nil:
		return fmt.Sprintf("The number was not called: %s, %s. %s", a.Status, *a.ErrorCode, text(a.ErrorDetail))
	case a.ErrorCode != nil:
		return fmt.Sprintf("The number was called, and the call failed: %s. %s", *a.ErrorCode, text(a.ErrorDetail))
	case a.Status == "canceled":
		return "The number was not called: the customer canceled the call request."
	case a.Status == "queued" && a.ScheduledFor.After(now):
		return fmt.Sprintf("The number is not called yet: the call is scheduled for %s.", due)
	case a.Status == "queued":
		return fmt.Sprintf("The number is not called yet, although the call was due at %s: the call waits for a free "+
			"channel of a trunk, for the limits of the workspace, or for the dialer.", due)
	case a.Status == "dialing":
		return "The number is being called."
	}
	return "The number was called."
}

// describeEnd returns a sentence that states how the call ended, or "" if the call has not ended.
func describeEnd(call json.RawMessage) string {
	var now struct {
		Status string
		Cause  *string `json:"hangup_cause"`
	}
	if json.Unmarshal(call, &now) != nil || now.Cause == nil {
		return ""
	}
	return fmt.Sprintf(" The call ended %s, %s.", now.Status, *now.Cause)
}

func text(of *string) string {
	if of == nil {
		return ""
	}
	return *of
}

// deliveries returns the deliveries of all events of the given calls and call requests.
func (o *WorkspaceClient) deliveries(ctx context.Context, objects ...string) (all []json.RawMessage, err error) {
	subscriptions, err := o.Members(ctx, o.at("webhook-subscriptions"), nil)
	if err != nil {
		return nil, err
	}
	all = []json.RawMessage{}
	for _, raw := range subscriptions {
		var subscribed struct{ ID string }
		if err := json.Unmarshal(raw, &subscribed); err != nil {
			return nil, fmt.Errorf("read a subscription: %w", err)
		}
		path := o.at("webhook-subscriptions", subscribed.ID, "deliveries")
		for _, id := range objects {
			found, err := o.Members(ctx, path, url.Values{"object_id": {id}})
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

// requestFacts contains the data of all services about one call request and its call. An inbound
// call has no call request.
type requestFacts struct {
	Answer     string            `json:"answer"`
	Request    json.RawMessage   `json:"request"`
	Decisions  []json.RawMessage `json:"decisions"`
	Attempts   []json.RawMessage `json:"attempts"`
	Call       json.RawMessage   `json:"call"`
	Deliveries []json.RawMessage `json:"deliveries"`
}

// Run finds the call request and prints the data about it.
func (c callsWhy) Run(ctx context.Context, o *WorkspaceClient) error {
	if strings.HasPrefix(c.Of, "+") {
		return o.explainNumber(ctx, c.Of)
	}
	request, err := o.Ask(ctx, http.MethodGet, o.at("call-requests", c.Of), nil)
	if err == nil {
		return o.explainRequest(ctx, request)
	}
	if !isNotFound(err) {
		return err
	}
	call, callErr := o.Ask(ctx, http.MethodGet, o.at("calls", c.Of), nil)
	if callErr != nil {
		return err
	}
	return o.explainCall(ctx, call)
}

func isNotFound(err error) bool {
	var refused *Refusal
	return errors.Is(err, errNoID) || errors.As(err, &refused) && refused.Status == http.StatusNotFound
}

// numberFacts contains the decisions about a number, the result of its gates now, and its newest
// call request. NewestRequest is nil if the number has no call request.
type numberFacts struct {
	Answer        string            `json:"answer"`
	Preview       json.RawMessage   `json:"preview"`
	NewestRequest *requestFacts     `json:"newest_request"`
	Decisions     []json.RawMessage `json:"decisions"`
}

// shownDecisions is how many of the newest decisions about a number are printed.
const shownDecisions = 20

func (o *WorkspaceClient) explainNumber(ctx context.Context, number string) (err error) {
	all := numberFacts{Decisions: []json.RawMessage{}}
	if all.Preview, err = o.Ask(ctx, http.MethodGet, o.at("contacts", number, "preview"), nil); err != nil {
		return err
	}
	var now struct {
		MayBeCalled bool `json:"may_be_called"`
		Message     *string
		NextAt      *time.Time `json:"next_at"`
		Gates       []json.RawMessage
	}
	if err := json.Unmarshal(all.Preview, &now); err != nil {
		return fmt.Errorf("read the preview: %w", err)
	}
	switch {
	case now.MayBeCalled:
		all.Answer = "The number can be called now."
	case now.NextAt != nil:
		next, _ := o.localTime(now.NextAt.Format(time.RFC3339))
		all.Answer = fmt.Sprintf("The number cannot be called now. It can be called at %s. %s", next, text(now.Message))
	default:
		all.Answer = "The number cannot be called. " + text(now.Message)
	}
	if all.NewestRequest, err = o.newestRequest(ctx, number); err != nil {
		return err
	}
	more := false
	filter := url.Values{"phone": {number}}
	for page, err := range o.yieldPages(ctx, o.at("decisions"), filter, Listed{Limit: shownDecisions}) {
		if err != nil {
			return err
		}
		all.Decisions, more = append(all.Decisions, page.Data...), page.HasMore
	}
	if o.JSON() {
		whole, err := json.Marshal(all)
		if err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
		return o.Member(whole)
	}
	faults := []error{
		o.Say(all.Answer),
		o.Say(""),
		o.Say("GATES NOW"),
		o.Table(now.Gates, []string{"gate", "result", "reason"}),
	}
	if newest := all.NewestRequest; newest != nil {
		faults = append(faults, o.Say(""), o.Say("NEWEST CALL REQUEST"), o.Say(newest.Answer), o.Member(newest.Request),
			o.printFacts(*newest))
	}
	faults = append(faults, o.printDecisions(all.Decisions))
	if more {
		o.Remark("These are the newest %d decisions: `ringfence contacts decisions --phone %s --all` lists all of them.",
			shownDecisions, number)
	}
	return errors.Join(faults...)
}

// newestRequest returns the data about the newest call request to a number, or nil if there is
// none.
func (o *WorkspaceClient) newestRequest(ctx context.Context, number string) (*requestFacts, error) {
	answer, err := o.Ask(ctx, http.MethodGet, o.at("call-requests")+"?"+
		url.Values{"to": {number}, "limit": {"1"}}.Encode(), nil)
	if err != nil {
		return nil, err
	}
	var page struct{ Data []json.RawMessage }
	if err := json.Unmarshal(answer, &page); err != nil {
		return nil, fmt.Errorf("read the call requests: %w", err)
	}
	if len(page.Data) == 0 {
		return nil, nil
	}
	facts, err := o.factsOf(ctx, page.Data[0])
	return &facts, err
}

// printDecisions prints a table of the decisions and, for each decision, a table of its gates.
func (o *WorkspaceClient) printDecisions(decisions []json.RawMessage) error {
	faults := []error{o.Say(""), o.Say("DECISIONS"),
		o.Table(decisions, []string{"judged_at", "kind", "result", "rule", "message"})}
	gates := []json.RawMessage{}
	for _, raw := range decisions {
		var decision struct {
			JudgedAt json.RawMessage              `json:"judged_at"`
			Kind     json.RawMessage              `json:"kind"`
			Gates    []map[string]json.RawMessage `json:"gates"`
		}
		if err := json.Unmarshal(raw, &decision); err != nil {
			return fmt.Errorf("read a decision: %w", err)
		}
		for _, gate := range decision.Gates {
			gate["judged_at"], gate["kind"] = decision.JudgedAt, decision.Kind
			row, err := json.Marshal(gate)
			if err != nil {
				return fmt.Errorf("encode a gate: %w", err)
			}
			gates = append(gates, row)
		}
	}
	if len(gates) > 0 {
		faults = append(faults, o.Say(""), o.Say("GATES"),
			o.Table(gates, []string{"judged_at", "kind", "gate", "result", "reason"}))
	}
	return errors.Join(faults...)
}

// explainCall explains the call request of a call. An inbound call has none.
func (o *WorkspaceClient) explainCall(ctx context.Context, call json.RawMessage) error {
	var of struct {
		ID      string  `json:"call_id"`
		Request *string `json:"call_request_id"`
	}
	if err := json.Unmarshal(call, &of); err != nil {
		return fmt.Errorf("read the call: %w", err)
	}
	if of.Request != nil {
		request, err := o.Ask(ctx, http.MethodGet, o.at("call-requests", *of.Request), nil)
		if err != nil {
			return err
		}
		return o.explainRequest(ctx, request)
	}
	all := requestFacts{Answer: "The call is inbound: it has no call request and no compliance decision.",
		Decisions: []json.RawMessage{}, Call: call}
	var err error
	if all.Attempts, err = o.Members(ctx, o.at("attempts"), url.Values{"of": {of.ID}}); err != nil {
		return err
	}
	if all.Deliveries, err = o.deliveries(ctx, of.ID); err != nil {
		return err
	}
	all.Answer += describeEnd(call)
	return o.print(all)
}

func (o *WorkspaceClient) explainRequest(ctx context.Context, request json.RawMessage) error {
	all, err := o.factsOf(ctx, request)
	if err != nil {
		return err
	}
	if err := o.print(all); err != nil {
		return err
	}
	var of struct{ ID string }
	if err := json.Unmarshal(request, &of); err != nil {
		return fmt.Errorf("read the call request: %w", err)
	}
	o.Remark("Every span of the trace has the attribute call_request_id %s.", of.ID)
	return nil
}

// factsOf reads what the services store about a call request.
func (o *WorkspaceClient) factsOf(ctx context.Context, request json.RawMessage) (all requestFacts, err error) {
	all.Request = request
	var now requestState
	if err := json.Unmarshal(request, &now); err != nil {
		return all, fmt.Errorf("read the call request: %w", err)
	}
	due, _ := o.localTime(now.ScheduledFor.Format(time.RFC3339))
	all.Answer = now.explain(time.Now(), due)
	if now.isDue(time.Now()) {
		all.Answer += o.explainWait(ctx, now)
	}
	if all.Decisions, err = o.Members(ctx, o.at("decisions"), url.Values{"call_request_id": {now.ID}}); err != nil {
		return all, err
	}
	if all.Attempts, err = o.Members(ctx, o.at("attempts"), url.Values{"of": {now.ID}}); err != nil {
		return all, err
	}
	objects := []string{now.ID}
	if now.CallID != nil {
		if all.Call, err = o.Ask(ctx, http.MethodGet, o.at("calls", *now.CallID), nil); err != nil {
			return all, err
		}
		all.Answer += describeEnd(all.Call)
		objects = append(objects, *now.CallID)
	}
	all.Deliveries, err = o.deliveries(ctx, objects...)
	return all, err
}

// explainWait returns sentences about the possible reasons why a due request waits: pauses of
// dialing, and trunks that cannot place calls.
func (o *WorkspaceClient) explainWait(ctx context.Context, request requestState) (sentences string) {
	var dialer statusAnswers
	_, _, err := dialer.readDialer(ctx, o.Client)
	var pauses []pausedScope
	if err == nil {
		pauses, err = o.pausesOf(ctx, request)
	}
	if err != nil {
		return fmt.Sprintf(" The dialer does not respond: %v.", err)
	}
	for _, pause := range dialer.dialer.Pauses {
		if pause.Level == "trunk" {
			pauses = append(pauses, pause)
		}
	}
	for _, pause := range pauses {
		sentences += " Dialing is paused: " + strings.TrimSuffix(pause.describe(), ".") + "."
	}
	if missing := dialer.noTrunk(); missing != "" {
		sentences += " Now " + missing + "."
	}
	return sentences
}

// pausesOf returns the pauses that stop the request: of all dialing, of the workspace and of the
// request's agent.
func (o *WorkspaceClient) pausesOf(ctx context.Context, request requestState) (pauses []pausedScope, err error) {
	for _, scope := range []struct{ level, id, path string }{
		{level: "everything", path: At("dialing")},
		{level: "workspace", id: o.workspace, path: o.at("dialing")},
		{level: "agent", id: request.AgentID, path: o.at("agents", request.AgentID, "dialing")},
	} {
		answer, err := o.Ask(ctx, http.MethodGet, scope.path, nil)
		if isNotFound(err) { // the agent was deleted
			continue
		}
		if err != nil {
			return nil, err
		}
		var state struct {
			State string
			pausedScope
		}
		if err := json.Unmarshal(answer, &state); err != nil {
			return nil, fmt.Errorf("read the state of dialing: %w", err)
		}
		if state.State == "paused" {
			state.Level, state.ID = scope.level, scope.id
			pauses = append(pauses, state.pausedScope)
		}
	}
	return pauses, nil
}

func deliveryColumns() []string {
	return []string{"event_type", "status", "attempts", "last_code", "last_error", "next_attempt_at", "id"}
}

func (o *WorkspaceClient) print(all requestFacts) error {
	whole, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	if o.JSON() {
		return o.Member(whole)
	}
	faults := []error{o.Say(all.Answer)}
	if all.Request != nil {
		faults = append(faults, o.Say(""), o.Say("REQUEST"), o.Member(all.Request), o.printDecisions(all.Decisions))
	}
	return errors.Join(append(faults, o.printFacts(all))...)
}

// printFacts prints the attempts, the call and the deliveries.
func (o *WorkspaceClient) printFacts(all requestFacts) error {
	faults := []error{o.Say(""), o.Say("ATTEMPTS"), o.Table(all.Attempts, attemptColumns())}
	if all.Call != nil {
		faults = append(faults, o.Say(""), o.Say("CALL"), o.Member(all.Call))
	}
	if all.Call != nil || len(all.Deliveries) > 0 {
		faults = append(faults, o.Say(""), o.Say("DELIVERIES"), o.Table(all.Deliveries, deliveryColumns()))
	}
	return errors.Join(faults...)
}
