package httpapi_test

import (
	"context"
	"sync"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/proto/dialerv1"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/settingsv1"
)

type fakePeers struct {
	mu        sync.Mutex
	preCheck  func(*compliancev1.PreCheckRequest) (*compliancev1.PreCheckResponse, error)
	hold      func(*billingv1.HoldRequest) (*billingv1.HoldResponse, error)
	withdraw  func(*dialerv1.WithdrawRequest) (*dialerv1.WithdrawResponse, error)
	hangup    func(*dialerv1.RequestHangupRequest) (*dialerv1.RequestHangupResponse, error)
	preChecks []*compliancev1.PreCheckRequest
	holds     []*billingv1.HoldRequest
	// If applyAgent is nil, the dialer accepts every agent.
	applyAgent func(context.Context, *eventv1.AgentEvent) error
	agents     []*eventv1.AgentEvent
}

// ApplySetting records the agent.
func (p *fakePeers) ApplySetting(
	ctx context.Context, req *connect.Request[settingsv1.ApplySettingRequest],
) (*connect.Response[settingsv1.ApplySettingResponse], error) {
	p.mu.Lock()
	apply := p.applyAgent
	p.mu.Unlock()
	if apply != nil {
		if err := apply(ctx, req.Msg.GetAgent()); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.agents = append(p.agents, req.Msg.GetAgent())
	return connect.NewResponse(&settingsv1.ApplySettingResponse{}), nil
}

func (p *fakePeers) PreCheck(_ context.Context,
	q *connect.Request[compliancev1.PreCheckRequest]) (*connect.Response[compliancev1.PreCheckResponse], error) {
	p.mu.Lock()
	p.preChecks = append(p.preChecks, q.Msg)
	say := p.preCheck
	p.mu.Unlock()
	return respond(say(q.Msg))
}

func (p *fakePeers) Hold(_ context.Context,
	q *connect.Request[billingv1.HoldRequest]) (*connect.Response[billingv1.HoldResponse], error) {
	p.mu.Lock()
	p.holds = append(p.holds, q.Msg)
	say := p.hold
	p.mu.Unlock()
	return respond(say(q.Msg))
}

func (p *fakePeers) Withdraw(_ context.Context,
	q *connect.Request[dialerv1.WithdrawRequest]) (*connect.Response[dialerv1.WithdrawResponse], error) {
	p.mu.Lock()
	say := p.withdraw
	p.mu.Unlock()
	return respond(say(q.Msg))
}

func (p *fakePeers) RequestHangup(_ context.Context,
	q *connect.Request[dialerv1.RequestHangupRequest]) (*connect.Response[dialerv1.RequestHangupResponse], error) {
	p.mu.Lock()
	say := p.hangup
	p.mu.Unlock()
	return respond(say(q.Msg))
}

func (p *fakePeers) set(change func(*fakePeers)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *fakePeers) heldIDs() (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		ids = append(ids, h.GetCallRequestId())
	}
	return ids
}

func respond[A any](answer *A, err error) (*connect.Response[A], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(answer), nil
}

func allow(q *compliancev1.PreCheckRequest) (*compliancev1.PreCheckResponse, error) {
	contact := q.GetContactId()
	if contact == "" {
		contact = uuid.NewSHA1(uuid.Nil, []byte(q.GetToE164())).String()
	}
	variables := q.GetVariablesJson()
	if len(variables) == 0 {
		variables = []byte("{}")
	}
	return &compliancev1.PreCheckResponse{Result: &compliancev1.PreCheckResponse_Allowed{Allowed: &compliancev1.Allowed{
		ContactId: contact, VariablesJson: variables, ScheduledFor: q.GetScheduledFor(),
	}}}, nil
}

func held(*billingv1.HoldRequest) (*billingv1.HoldResponse, error) {
	return &billingv1.HoldResponse{Result: &billingv1.HoldResponse_Held{Held: &billingv1.Held{AmountMicro: 500_000, Currency: "USD"}}}, nil
}

func withdrawn(yes bool) func(*dialerv1.WithdrawRequest) (*dialerv1.WithdrawResponse, error) {
	return func(*dialerv1.WithdrawRequest) (*dialerv1.WithdrawResponse, error) {
		return &dialerv1.WithdrawResponse{Withdrawn: yes}, nil
	}
}

func refuse(code string) func(*compliancev1.PreCheckRequest) (*compliancev1.PreCheckResponse, error) {
	return func(*compliancev1.PreCheckRequest) (*compliancev1.PreCheckResponse, error) {
		return &compliancev1.PreCheckResponse{Result: &compliancev1.PreCheckResponse_Refused{Refused: &compliancev1.Refused{Code: code, Message: "No."}}}, nil
	}
}
