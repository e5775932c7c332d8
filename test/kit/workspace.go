package kit

import (
	"context"
	"fmt"
	"net/http"
)

// Workspace is a workspace of one test, with credit, an agent and API keys.
type Workspace struct {
	ID, AgentID string
	// API is a client with a write key, and Admin a client with the operator token.
	API, Admin *Client
	WriteKey   string
}

// NewWorkspace creates a workspace with the given credit, for example "1000". The workspace can
// place calls at any hour, and its rate limit is higher than any test needs.
func (s *Stack) NewWorkspace(ctx context.Context, name, credit string) (*Workspace, error) {
	return s.newWorkspace(ctx, name, "live", credit)
}

// NewTestWorkspace creates a test workspace. Its calls are simulated, also if the stack dials over
// SIP trunks. Otherwise it is like a workspace of NewWorkspace.
func (s *Stack) NewTestWorkspace(ctx context.Context, name, credit string) (*Workspace, error) {
	return s.newWorkspace(ctx, name, "test", credit)
}

func (s *Stack) newWorkspace(ctx context.Context, name, mode, credit string) (*Workspace, error) {
	admin := NewClient(s.Demo.AdminURL, s.Demo.AdminToken)
	var made struct {
		ID  string `json:"id"`
		Key string `json:"key"`
	}
	err := admin.Into(ctx, "POST", "/admin/v1/workspaces", map[string]any{
		"name": name, "mode": mode, "plan": "scale", "currency": "USD", "rate_limit_per_minute": 1_000_000,
		"max_live_calls": 10_000, "calls_per_second": 500,
		"calling_policy": map[string]any{"window": map[string]any{"start": "00:00", "end": "24:00"}, "timezone": "recipient"},
	}, http.StatusCreated, &made)
	if err != nil {
		return nil, err
	}
	w := &Workspace{ID: made.ID, Admin: admin}
	path := "/admin/v1/workspaces/" + w.ID
	if err := admin.Into(ctx, "POST", path+"/api-keys", map[string]any{"name": "test", "access": "write"}, http.StatusCreated, &made); err != nil {
		return nil, err
	}
	w.WriteKey, w.API = made.Key, NewClient(s.Demo.BaseURL, made.Key)
	if err := admin.Into(ctx, "POST", path+"/agents", map[string]any{"name": "Ada"}, http.StatusCreated, &made); err != nil {
		return nil, err
	}
	w.AgentID = made.ID
	return w, w.TopUp(ctx, credit, "initial")
}

// TopUp adds credit. A repeated call with the same reference adds no credit.
func (w *Workspace) TopUp(ctx context.Context, amount, reference string) error {
	status, answer, err := w.Admin.Do(ctx, "POST", "/admin/v1/workspaces/"+w.ID+"/wallet/transactions",
		map[string]any{"type": "top_up", "amount": amount, "reference": reference})
	if err == nil && status != http.StatusCreated && status != http.StatusOK {
		err = fmt.Errorf("top up: %d %s", status, answer)
	}
	return err
}

// Differences runs a reconciliation of the wallet and returns the differences that it finds.
func (w *Workspace) Differences(ctx context.Context) (found []string, err error) {
	var books struct {
		OK          bool `json:"ok"`
		Differences []struct{ Kind, Subject, Kept, Found string }
	}
	err = w.Admin.Into(ctx, "GET", "/admin/v1/workspaces/"+w.ID+"/wallet/reconcile", nil, http.StatusOK, &books)
	for _, d := range books.Differences {
		found = append(found, fmt.Sprintf("%s: %s: kept %s, found %s", d.Kind, d.Subject, d.Kept, d.Found))
	}
	if err == nil && books.OK != (len(found) == 0) {
		err = fmt.Errorf("reconcile is ok %v with %d differences", books.OK, len(found))
	}
	return found, err
}

// Subscribe creates a subscription of every call event of the workspace. The receiver gets the
// events and the signing secret.
func (w *Workspace) Subscribe(ctx context.Context, r *Receiver) (id string, err error) {
	var made struct {
		ID     string `json:"id"`
		Secret string `json:"signing_secret"`
	}
	err = w.API.Into(ctx, "POST", "/v1/webhook-subscriptions", map[string]any{
		"name": "test", "url": r.URL + "/" + w.ID,
		"events": []string{"call.ringing", "call.answered", "call.completed", "call.failed", "call.no_answer", "call.busy"},
	}, http.StatusCreated, &made)
	r.SetSecret("/"+w.ID, made.Secret)
	return made.ID, err
}

// Place creates a call request and returns it.
func (w *Workspace) Place(ctx context.Context, body map[string]any) (Request, error) {
	full := map[string]any{"agent_id": w.AgentID}
	for k, v := range body {
		full[k] = v
	}
	var req Request
	err := w.API.Into(ctx, "POST", "/v1/calls", full, http.StatusAccepted, &req)
	return req, err
}

// Request returns a call request.
func (w *Workspace) Request(ctx context.Context, id string) (Request, error) {
	var req Request
	err := w.API.Into(ctx, "GET", "/v1/call-requests/"+id, nil, http.StatusOK, &req)
	return req, err
}

// Requests returns every call request of the workspace.
func (w *Workspace) Requests(ctx context.Context) ([]Request, error) {
	return All(ctx, w.API, "/v1/call-requests", nil, func(r Request) string { return r.ID })
}

// Call returns a call.
func (w *Workspace) Call(ctx context.Context, id string) (Call, error) {
	var call Call
	err := w.API.Into(ctx, "GET", "/v1/calls/"+id, nil, http.StatusOK, &call)
	return call, err
}
