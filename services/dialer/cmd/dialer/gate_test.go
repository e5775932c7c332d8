package main

import (
	"context"
	"sync"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"ringfence.dev/proto/compliancev1"
)

// gate is a fake of contacts-compliance.
type gate struct {
	mu      sync.Mutex
	answer  func(req *compliancev1.CheckRequest, times int) (*compliancev1.CheckResponse, error)
	checks  map[string]int
	optOut  func(times int) error
	optOuts []*compliancev1.RecordOptOutRequest
}

func open() *compliancev1.CheckResponse {
	return &compliancev1.CheckResponse{Result: &compliancev1.CheckResponse_Open{Open: &compliancev1.Open{}}}
}

func closed(code string) *compliancev1.CheckResponse {
	return &compliancev1.CheckResponse{Result: &compliancev1.CheckResponse_Closed{Closed: &compliancev1.Closed{Code: code, Message: "Do not."}}}
}

func (g *gate) asked(id uuid.UUID) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checks[id.String()]
}

func (g *gate) Check(_ context.Context, req *connect.Request[compliancev1.CheckRequest]) (*connect.Response[compliancev1.CheckResponse], error) {
	g.mu.Lock()
	if g.checks == nil {
		g.checks = map[string]int{}
	}
	g.checks[req.Msg.GetCallRequestId()]++
	times := g.checks[req.Msg.GetCallRequestId()]
	g.mu.Unlock()
	if g.answer == nil {
		return connect.NewResponse(open()), nil
	}
	answer, err := g.answer(req.Msg, times)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(answer), nil
}

func (g *gate) RecordOptOut(_ context.Context, req *connect.Request[compliancev1.RecordOptOutRequest]) (*connect.Response[compliancev1.RecordOptOutResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.optOuts = append(g.optOuts, req.Msg)
	if g.optOut != nil {
		if err := g.optOut(len(g.optOuts)); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&compliancev1.RecordOptOutResponse{}), nil
}

func (g *gate) heard(number string) (times int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.optOuts {
		if o.GetPhoneE164() == number {
			times++
		}
	}
	return times
}

var known = uuid.Must(uuid.NewV7())

func (g *gate) LookupCaller(context.Context, *connect.Request[compliancev1.LookupCallerRequest]) (*connect.Response[compliancev1.LookupCallerResponse], error) {
	return connect.NewResponse(&compliancev1.LookupCallerResponse{ContactId: known.String(), TimeZone: "Asia/Tokyo"}), nil
}
