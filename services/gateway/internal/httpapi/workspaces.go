package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/workspaces"
)

type workspaceView struct {
	ID                 uuid.UUID            `json:"id"`
	Name               string               `json:"name"`
	Plan               workspaces.Plan      `json:"plan"`
	Currency           string               `json:"currency"`
	Status             workspaces.Status    `json:"status"`
	Mode               workspaces.Mode      `json:"mode"`
	CallingPolicy      json.RawMessage      `json:"calling_policy"`
	Features           workspaces.Features  `json:"features"`
	RateLimitPerMinute *int32               `json:"rate_limit_per_minute"`
	MaxLiveCalls       int32                `json:"max_live_calls"`
	CallsPerSecond     int32                `json:"calls_per_second"`
	Destinations       []string             `json:"destinations"`
	Retention          workspaces.Retention `json:"retention"`
	Inbound            inboundView          `json:"inbound"`
	CreatedAt          openapi.Timestamp    `json:"created_at"`
	UpdatedAt          openapi.Timestamp    `json:"updated_at"`
}

func viewWorkspace(w workspaces.Workspace) workspaceView {
	return workspaceView{ID: w.ID, Name: w.Name, Plan: w.Plan, Currency: w.Currency, Status: w.Status, Mode: w.Mode,
		CallingPolicy: w.CallingPolicy,
		Features:      w.Features, RateLimitPerMinute: w.RateLimitPerMinute, MaxLiveCalls: w.MaxLiveCalls,
		CallsPerSecond: w.CallsPerSecond,
		Destinations:   w.Destinations, Retention: w.Retention,
		Inbound: inboundView{
			w.Inbound.PerMinute.String(), w.Inbound.IncrementSeconds, w.Inbound.MaxConcurrent, w.Inbound.MaxCallSeconds,
		},
		CreatedAt: openapi.TimestampOf(page.TimeOf(w.ID)), UpdatedAt: openapi.TimestampOf(w.UpdatedAt)}
}

// inboundView has the same members as the request body, so that a client can send the response
// back.
type inboundView struct {
	PerMinute        string `json:"per_minute"`
	IncrementSeconds int32  `json:"increment_seconds"`
	MaxConcurrent    int32  `json:"max_concurrent"`
	MaxCallSeconds   int32  `json:"max_call_seconds"`
}

// workspaceState returns the state of a workspace for the audit log. The state contains no secret.
func workspaceState(w workspaces.Workspace) []byte {
	state, err := json.Marshal(viewWorkspace(w))
	if err != nil {
		return nil // unreachable: the policy was decoded from JSON, so it can be encoded
	}
	return state
}

func (a *Admin) listWorkspaces(w http.ResponseWriter, r *http.Request) error {
	request, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	found, err := a.store.Workspaces(r.Context(), request)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(request, found, viewWorkspace))
}

func (a *Admin) readWorkspace(w http.ResponseWriter, r *http.Request) error {
	found, err := a.workspaceOf(r)
	if err != nil {
		return err
	}
	httpserver.SetETag(w, found.Version)
	return httpserver.WriteJSON(w, http.StatusOK, viewWorkspace(found))
}

// createWorkspace handles POST /admin/v1/workspaces. It responds when every service has stored the
// workspace.
func (a *Admin) createWorkspace(w http.ResponseWriter, r *http.Request) error {
	var body workspaces.Change
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	operator := actorOf(r)
	made, err := workspaces.New(id, operator.operator, body)
	if err != nil {
		return err
	}
	if err := a.checkPolicy(r.Context(), body); err != nil {
		return err
	}
	ctx := context.WithoutCancel(r.Context()) // a disconnect of the client must not interrupt a change
	change, err := operator.pendingEntry(r, template(r), &id)
	if err != nil {
		return err
	}
	saved, err := a.store.AddWorkspace(ctx, made, doneEntry(change, http.StatusCreated), workspaceState)
	if err != nil {
		return err
	}
	httpserver.SetETag(w, saved.Version) // also for a 503, because the workspace is stored
	if err := a.peers.ApplyWorkspace(ctx, "Workspace "+id.String(), saved.Event(), workspaces.AllServices()); err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusCreated, viewWorkspace(saved))
}

// checkPolicy returns 422 if contacts-compliance refuses the calling policy in the body. A body
// without a policy needs no check, because the default policy is always valid.
func (a *Admin) checkPolicy(ctx context.Context, body workspaces.Change) error {
	if body.CallingPolicy.Value == nil {
		return nil
	}
	return a.peers.CheckPolicy(ctx, *body.CallingPolicy.Value)
}

// changeWorkspace handles PATCH /admin/v1/workspaces/{id}. It responds when every service that uses
// a changed setting has stored the new version.
func (a *Admin) changeWorkspace(w http.ResponseWriter, r *http.Request) error {
	before, err := a.workspaceOf(r)
	if err != nil {
		return err
	}
	if err := httpserver.CheckIfMatch(r, before.Version); err != nil {
		return err
	}
	var body workspaces.Change
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	operator := actorOf(r)
	if _, err := before.Changed(operator.operator, body); err != nil {
		return err
	}
	if err := a.checkPolicy(r.Context(), body); err != nil {
		return err
	}
	ctx := context.WithoutCancel(r.Context()) // a disconnect of the client must not interrupt a change
	change, err := operator.pendingEntry(r, template(r), &before.ID)
	if err != nil {
		return err
	}
	saved, err := a.store.ChangeWorkspace(ctx, before.ID, doneEntry(change, http.StatusOK), workspaceState,
		func(stored workspaces.Workspace) (workspaces.Workspace, error) {
			if err := httpserver.CheckIfMatch(r, stored.Version); err != nil {
				return workspaces.Workspace{}, err
			}
			return stored.Changed(operator.operator, body)
		})
	if err != nil {
		return err
	}
	httpserver.SetETag(w, saved.Version) // also for a 503, so that the client can repeat the stored change
	if err := a.peers.ApplyWorkspace(ctx, "The change", saved.Event(), body.Services()); err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewWorkspace(saved))
}
