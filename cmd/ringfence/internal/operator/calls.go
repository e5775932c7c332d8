package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

type calls struct {
	Why      callsWhy      `cmd:"" help:"Explain why a call was placed or not: the call request, each compliance decision, each attempt with the trunk's response, the call, and its webhook deliveries."`
	Attempts callsAttempts `cmd:"" help:"List the attempts of a call or call request: trunk, Call-ID, SIP status and reason."`
	List     callsList     `cmd:"" help:"List calls."`
	Show     callsShow     `cmd:"" help:"Show a call without its transcript."`
	Requests callsRequests `cmd:"" help:"List call requests."`
	Request  callsRequest  `cmd:"" help:"Show a call request."`
}

type callsList struct {
	Status    string `help:"List only calls with this status: completed, no_answer, busy, failed, …"`
	Direction string `help:"List only calls with this direction: inbound or outbound."`
	Ref       string `help:"List only items with this external_ref."`
	After     string `placeholder:"TIME" help:"List only calls created after this time: 2026-06-04T09:00:00Z."`
	Before    string `placeholder:"TIME" help:"List only calls created before this time."`
	Listed
}

func (c callsList) Run(ctx context.Context, o *WorkspaceClient) error {
	filter := url.Values{"status": {c.Status}, "direction": {c.Direction}, "external_ref": {c.Ref}, "created_after": {c.After}, "created_before": {c.Before}}
	return o.List(ctx, o.at("calls"), filter, c.Listed, "id", "created_at", "direction", "from", "to", "status", "outcome", "talked=talk_seconds", "external_ref")
}

type callsShow struct {
	Call string `arg:"" help:"Id of the call."`
}

func (c callsShow) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("calls", c.Call), nil)
}

type callsRequests struct {
	Status string `help:"Only call requests with this status: queued, dialing, completed, blocked, failed or canceled."`
	Ref    string `help:"List only items with this external_ref."`
	Listed
}

func (c callsRequests) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("call-requests"), url.Values{"status": {c.Status}, "external_ref": {c.Ref}}, c.Listed,
		"id", "created_at", "to", "status", "error_code", "scheduled_for", "call_id", "external_ref")
}

type request struct {
	Request string `arg:"" help:"Id of the call request."`
}

type callsRequest struct{ request }

func (c callsRequest) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("call-requests", c.Request), nil)
}

type callsWhy struct{ request }

// requestState contains the fields of a call request that `calls why` reads.
type requestState struct {
	Status       string
	CallID       *string   `json:"call_id"`
	ScheduledFor time.Time `json:"scheduled_for"`
	ErrorCode    *string   `json:"error_code"`
	ErrorDetail  *string   `json:"error_detail"`
}

// explain returns a sentence that explains the state of the request.
func (a requestState) explain(now time.Time) string {
	switch {
	case a.ErrorCode != nil && a.CallID == nil:
		return fmt.Sprintf("The number was not called: %s, %s. %s", a.Status, *a.ErrorCode, text(a.ErrorDetail))
	case a.ErrorCode != nil:
		return fmt.Sprintf("The number was called, and the call failed: %s. %s", *a.ErrorCode, text(a.ErrorDetail))
	case a.Status == "canceled":
		return "The number was not called: the customer canceled the call request."
	case a.Status == "queued" && a.ScheduledFor.After(now):
		return fmt.Sprintf("The number is not called yet: the call is scheduled for %s.", a.ScheduledFor.Format(time.RFC3339))
	case a.Status == "queued":
		return fmt.Sprintf("The number is not called yet, although the call was due at %s: the call waits for a free "+
			"channel of a trunk, for the limits of the workspace, or for the dialer.", a.ScheduledFor.Format(time.RFC3339))
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

// requestFacts contains the data of all services about one call request.
type requestFacts struct {
	Answer     string            `json:"answer"`
	Request    json.RawMessage   `json:"request"`
	Decisions  []json.RawMessage `json:"decisions"`
	Attempts   []json.RawMessage `json:"attempts"`
	Call       json.RawMessage   `json:"call"`
	Deliveries []json.RawMessage `json:"deliveries"`
}

// Run reads the data about the call request from every service that has some.
func (c callsWhy) Run(ctx context.Context, o *WorkspaceClient) error {
	all := requestFacts{Decisions: []json.RawMessage{}, Attempts: []json.RawMessage{}, Deliveries: []json.RawMessage{}}
	var err error
	if all.Request, err = o.Ask(ctx, http.MethodGet, o.at("call-requests", c.Request), nil); err != nil {
		return o.hintIfCall(ctx, c.Request, err)
	}
	var now requestState
	if err := json.Unmarshal(all.Request, &now); err != nil {
		return fmt.Errorf("read the call request: %w", err)
	}
	all.Answer = now.explain(time.Now())
	if now.Status == "queued" && now.ErrorCode == nil && !now.ScheduledFor.After(time.Now()) {
		var dialer statusAnswers
		if _, _, err := dialer.readDialer(ctx, o.Client); err != nil {
			all.Answer += fmt.Sprintf(" The dialer does not respond: %v.", err)
		} else if missing := dialer.noTrunk(); missing != "" {
			all.Answer += " Now " + missing + "."
		}
	}
	if all.Decisions, err = o.Members(ctx, o.at("decisions"), url.Values{"call_request_id": {c.Request}}); err != nil {
		return err
	}
	if all.Attempts, err = o.Members(ctx, o.at("attempts"), url.Values{"of": {c.Request}}); err != nil {
		return err
	}
	if now.CallID != nil {
		if all.Call, err = o.Ask(ctx, http.MethodGet, o.at("calls", *now.CallID), nil); err != nil {
			return err
		}
		all.Answer += describeEnd(all.Call)
		if all.Deliveries, err = o.deliveries(ctx, *now.CallID); err != nil {
			return err
		}
	}
	if err := o.tell(all); err != nil {
		return err
	}
	o.Remark("Every span of the trace has the attribute call_request_id %s.", c.Request)
	return nil
}

// hintIfCall adds a hint to the error if the id belongs to a call instead of a call request.
func (o *WorkspaceClient) hintIfCall(ctx context.Context, id string, fault error) error {
	var refused *Refusal
	if !errors.As(fault, &refused) || refused.Status != http.StatusNotFound {
		return fault
	}
	if _, err := o.Ask(ctx, http.MethodGet, o.at("calls", id), nil); err != nil {
		return fault
	}
	return fmt.Errorf("%s is the id of a call, not of a call request: `ringfence calls show %s` shows it, "+
		"`ringfence calls requests` has its request and `ringfence calls attempts %s` the trunk's answers", id, id, id)
}

func (o *WorkspaceClient) deliveries(ctx context.Context, call string) (all []json.RawMessage, err error) {
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
		to, err := o.Members(ctx, o.at("webhook-subscriptions", subscribed.ID, "deliveries"), url.Values{"call_id": {call}})
		if err != nil {
			return nil, err
		}
		all = append(all, to...)
	}
	return all, nil
}

func (o *WorkspaceClient) tell(all requestFacts) error {
	whole, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	if o.JSON() {
		return o.Member(whole)
	}
	faults := []error{o.Say(all.Answer), o.Say(""), o.Say("REQUEST"), o.Member(all.Request), o.Say(""), o.Say("DECISIONS"),
		o.Table(all.Decisions, []string{"judged_at", "kind", "result", "rule", "message"}), o.Say(""), o.Say("ATTEMPTS"),
		o.Table(all.Attempts, attemptColumns())}
	if all.Call != nil {
		faults = append(faults, o.Say(""), o.Say("CALL"), o.Member(all.Call), o.Say(""), o.Say("DELIVERIES"),
			o.Table(all.Deliveries, []string{"event_type", "status", "attempts", "last_code", "last_error", "next_attempt_at", "id"}))
	}
	return errors.Join(faults...)
}
