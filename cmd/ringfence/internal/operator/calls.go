package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

type calls struct {
	Why      callsWhy      `cmd:"" help:"Explain why a call was placed or not. Prints the call request, the call, each compliance decision with the reason of each gate, each attempt, and each webhook delivery. For a number, prints its decisions and whether it can be called now."`
	Timeline callsTimeline `cmd:"" help:"List what happened to a call request, oldest first: decisions, attempts, the call, and each attempt to deliver a webhook."`
	Attempts callsAttempts `cmd:"" help:"List the attempts of a call or call request: trunk, Call-ID, SIP status and reason."`
	List     callsList     `cmd:"" help:"List calls."`
	Show     callsShow     `cmd:"" help:"Show a call without its transcript and summary."`
	Hangup   callsHangup   `cmd:"" help:"Hang up a call, or all calls of the workspace. An answered call is completed and charged; an unanswered one is canceled."`
	Requests callsRequests `cmd:"" help:"List call requests."`
	Request  callsRequest  `cmd:"" help:"Show a call request."`
	Cancel   callsCancel   `cmd:"" help:"Cancel a queued call request. A request that is being dialed cannot be canceled."`
}

type callsList struct {
	To        string `placeholder:"NUMBER" help:"List only items with this called number: +14155550100."`
	Status    string `help:"List only calls with this status: completed, no_answer, busy, failed, …"`
	Outcome   string `help:"List only calls with this outcome."`
	Direction string `help:"List only calls with this direction: inbound or outbound."`
	Agent     string `placeholder:"ID" help:"List only calls of the agent with this id."`
	Request   string `placeholder:"ID" help:"List only the call of the call request with this id."`
	Ref       string `help:"List only items with this external_ref."`
	Listed
}

func (c callsList) Run(ctx context.Context, o *WorkspaceClient) error {
	filter := url.Values{"to": {c.To}, "status": {c.Status}, "outcome": {c.Outcome}, "direction": {c.Direction},
		"agent_id": {c.Agent}, "call_request_id": {c.Request}, "external_ref": {c.Ref}}
	return o.List(ctx, o.at("calls"), filter, c.Listed, "id", "created_at", "direction", "from", "to", "status", "outcome", "talked=talk_seconds", "external_ref")
}

type callsShow struct {
	Call string `arg:"" help:"Id of the call."`
}

func (c callsShow) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("calls", c.Call), nil)
}

type callsRequests struct {
	To     string `placeholder:"NUMBER" help:"List only items with this called number: +14155550100."`
	Status string `help:"Only call requests with this status: queued, dialing, completed, blocked, failed or canceled."`
	Ref    string `help:"List only items with this external_ref."`
	Listed
}

func (c callsRequests) Run(ctx context.Context, o *WorkspaceClient) error {
	filter := url.Values{"to": {c.To}, "status": {c.Status}, "external_ref": {c.Ref}}
	return o.List(ctx, o.at("call-requests"), filter, c.Listed,
		"id", "created_at", "to", "status", "error_code", "scheduled_for", "call_id", "external_ref")
}

type request struct {
	Request string `arg:"" help:"Id of the call request."`
}

type callsRequest struct{ request }

func (c callsRequest) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("call-requests", c.Request), nil)
}

type callsTimeline struct{ request }

func (c callsTimeline) Run(ctx context.Context, o *WorkspaceClient) error {
	answer, err := o.Ask(ctx, http.MethodGet, o.at("call-requests", c.Request, "timeline"), nil)
	if err != nil {
		return err
	}
	var read struct{ Data []json.RawMessage }
	if err := json.Unmarshal(answer, &read); err != nil {
		return fmt.Errorf("read the timeline: %w", err)
	}
	return o.Table(read.Data, []string{"at", "type", "message", "object_id"})
}

type callsCancel struct{ request }

func (c callsCancel) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodPost, o.at("call-requests", c.Request, "cancel"), nil)
}
