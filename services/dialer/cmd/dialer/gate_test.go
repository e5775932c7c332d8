package main

import (
	"context"
	"sync"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"ringfence.dev/proto/questionv1"
)

// gate stands for contacts-compliance.
type gate struct {
	mu      sync.Mutex
	answer  func(req *questionv1.CheckRequest, times int) (*questionv1.CheckResponse, error)
	checks  map[string]int
	optOut  func(times int) error
	optOuts []*questionv1.OptOutRequest
}

func open() *questionv1.CheckResponse {
	return &questionv1.CheckResponse{Result: &questionv1.CheckResponse_Open{Open: &questionv1.Open{}}}
}

func closed(code string) *questionv1.CheckResponse {
	return &questionv1.CheckResponse{Result: &questionv1.CheckResponse_Closed{Closed: &questionv1.Closed{Code: code, Message: "Do not."}}}
}

func (g *gate) asked(id uuid.UUID) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checks[id.String()]
}

func (g *gate) Check(_ context.Context, req *connect.Request[questionv1.CheckRequest]) (*connect.Response[questionv1.CheckResponse], error) {
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

func (g *gate) OptOut(_ context.Context, req *connect.Request[questionv1.OptOutRequest]) (*connect.Response[questionv1.OptOutResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.optOuts = append(g.optOuts, req.Msg)
	if g.optOut != nil {
		if err := g.optOut(len(g.optOuts)); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&questionv1.OptOutResponse{}), nil
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

func (g *gate) Recognise(context.Context, *connect.Request[questionv1.RecogniseRequest]) (*connect.Response[questionv1.RecogniseResponse], error) {
	return connect.NewResponse(&questionv1.RecogniseResponse{ContactId: known.String(), TimeZone: "Asia/Tokyo"}), nil
}
