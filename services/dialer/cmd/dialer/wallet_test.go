package main

import (
	"context"
	"slices"
	"sync"

	"connectrpc.com/connect"

	"ringfence.dev/proto/billingv1"
)

// wallet is the fake of billing-wallet. If answer is nil, every hold is made.
type wallet struct {
	mu     sync.Mutex
	answer func(req *billingv1.HoldRequest, times int) (*billingv1.HoldResponse, error)
	orders []*billingv1.HoldRequest
}

func (w *wallet) Hold(
	_ context.Context, req *connect.Request[billingv1.HoldRequest],
) (*connect.Response[billingv1.HoldResponse], error) {
	w.mu.Lock()
	w.orders = append(w.orders, req.Msg)
	times, answer := len(w.orders), w.answer
	w.mu.Unlock()
	response := &billingv1.HoldResponse{Result: &billingv1.HoldResponse_Held{Held: &billingv1.Held{Currency: "USD"}}}
	if answer == nil {
		return connect.NewResponse(response), nil
	}
	response, err := answer(req.Msg, times)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(response), nil
}

// answerWith sets answer while a dialer runs.
func (w *wallet) answerWith(answer func(req *billingv1.HoldRequest, times int) (*billingv1.HoldResponse, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// ordersOf returns the requests to make a hold for a call.
func (w *wallet) ordersOf(call string) []*billingv1.HoldRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.orders), func(o *billingv1.HoldRequest) bool {
		return o.GetInbound().GetCallId() != call
	})
}

// orderCount returns the number of requests for holds.
func (w *wallet) orderCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.orders)
}

func insufficient() *billingv1.HoldResponse {
	return &billingv1.HoldResponse{Result: &billingv1.HoldResponse_Insufficient{
		Insufficient: &billingv1.Insufficient{Message: "Top up."},
	}}
}
