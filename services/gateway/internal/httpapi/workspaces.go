package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/instant"
	"ringfence.dev/libs/page"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/route"
	"ringfence.dev/services/gateway/internal/store"
	"ringfence.dev/services/gateway/internal/workspace"
)

type workspaceView struct {
	ID                 uuid.UUID           `json:"id"`
	Name               string              `json:"name"`
	Plan               workspace.Plan      `json:"plan"`
	Currency           string              `json:"currency"`
	Status             workspace.Status    `json:"status"`
	CallingPolicy      json.RawMessage     `json:"calling_policy"`
	Features           workspace.Features  `json:"features"`
	RateLimitPerMinute *int32              `json:"rate_limit_per_minute"`
	MaxLiveCalls       int32               `json:"max_live_calls"`
	CallsPerSecond     int32               `json:"calls_per_second"`
	Destinations       []string            `json:"destinations"`
	Retention          workspace.Retention `json:"retention"`
	CreatedAt          openapi.Timestamp   `json:"created_at"`
	UpdatedAt          openapi.Timestamp   `json:"updated_at"`
}

func viewWorkspace(w workspace.Workspace) workspaceView {
	return workspaceView{ID: w.ID, Name: w.Name, Plan: w.Plan, Currency: w.Currency, Status: w.Status, CallingPolicy: w.CallingPolicy,
		Features: w.Features, RateLimitPerMinute: w.RateLimitPerMinute, MaxLiveCalls: w.MaxLiveCalls, CallsPerSecond: w.CallsPerSecond,
		Destinations: w.Destinations, Retention: w.Retention, CreatedAt: openapi.TimestampOf(instant.Of(w.ID)), UpdatedAt: openapi.TimestampOf(w.UpdatedAt)}
}

// workspaceState is what the audit keeps: the view itself, which holds no secret.
func workspaceState(w workspace.Workspace) []byte {
	state, err := json.Marshal(viewWorkspace(w))
	if err != nil {
		return nil // a policy that is no JSON never got this far
	}
	return state
}

func (a *Admin) listWorkspaces(w http.ResponseWriter, r *http.Request) error {
	asked, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	found, err := a.store.Workspaces(r.Context(), asked)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(asked, found, viewWorkspace))
}

func (a *Admin) readWorkspace(w http.ResponseWriter, r *http.Request) error {
	found, err := a.workspaceOf(r)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewWorkspace(found))
}

// createWorkspace asks the owners of policy and currency first, so that the workspace exists only once they know it.
func (a *Admin) createWorkspace(w http.ResponseWriter, r *http.Request) error {
	var body workspace.Change
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	made, err := workspace.New(id, body)
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(r.Context()) // begun, it is finished
	intent, err := actorOf(r).intent(r, template(r), &id)
	if err != nil {
		return err
	}
	if err := a.store.Intend(ctx, intent); err != nil {
		return err
	}
	saved, err := made, a.handOnAll(ctx, actorOf(r), made)
	if err == nil {
		saved, err = a.store.AddWorkspace(ctx, made, done(intent, http.StatusCreated), workspaceState)
	}
	if err != nil {
		a.settle(ctx, intent, err)
		return err
	}
	return httpserver.WriteJSON(w, http.StatusCreated, viewWorkspace(saved))
}

func (a *Admin) handOnAll(ctx context.Context, who actor, w workspace.Workspace) error {
	if err := a.handOnPolicy(ctx, who, w); err != nil {
		return err
	}
	path := "/internal/v1/workspaces/" + w.ID.String() + "/currency"
	if err := a.peers.HandOn(ctx, route.Wallet, path, who.caller(w), map[string]string{"currency": w.Currency}); err != nil {
		return fmt.Errorf("hand on the currency: %w", err)
	}
	return nil
}

type policyHandedOn struct {
	CallingPolicy json.RawMessage `json:"calling_policy"`
	Operator      string          `json:"operator"`
}

func (a *Admin) handOnPolicy(ctx context.Context, who actor, w workspace.Workspace) error {
	path := "/internal/v1/workspaces/" + w.ID.String() + "/policy"
	body := policyHandedOn{CallingPolicy: w.CallingPolicy, Operator: who.operator}
	if err := a.peers.HandOn(ctx, route.Contacts, path, who.caller(w), body); err != nil {
		return fmt.Errorf("hand on the calling policy: %w", err)
	}
	return nil
}

// changeTries bounds how often a change is begun anew because another operator's came between.
const changeTries = 5

func (a *Admin) changeWorkspace(w http.ResponseWriter, r *http.Request) error {
	before, err := a.workspaceOf(r)
	if err != nil {
		return err
	}
	var body workspace.Change
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	if _, err := before.Changed(body); err != nil {
		return err
	}
	ctx := context.WithoutCancel(r.Context()) // begun, it is finished
	intent, err := actorOf(r).intent(r, template(r), &before.ID)
	if err != nil {
		return err
	}
	intent.Before = workspaceState(before)
	if err := a.store.Intend(ctx, intent); err != nil {
		return err
	}
	entry := done(intent, http.StatusOK)
	var saved workspace.Workspace
	for try := 1; ; try++ {
		entry.Before = workspaceState(before)
		saved, err = a.change(ctx, actorOf(r), before, body, func(next workspace.Workspace) (workspace.Workspace, error) {
			return a.store.ChangeWorkspace(ctx, next, entry, workspaceState)
		})
		if !errors.Is(err, store.ErrStale) || try == changeTries {
			break
		}
		if before, err = a.store.Workspace(ctx, before.ID); err != nil {
			break
		}
	}
	if err != nil {
		a.settle(ctx, intent, err)
		return err
	}
	a.door.Forget()
	return httpserver.WriteJSON(w, http.StatusOK, viewWorkspace(saved))
}

// change is one try. The policy goes to its owner before the commit; whoever commits last also handed on last, because a try
// that was overtaken is begun anew.
func (a *Admin) change(ctx context.Context, who actor, before workspace.Workspace, body workspace.Change,
	commit func(workspace.Workspace) (workspace.Workspace, error),
) (workspace.Workspace, error) {
	next, err := before.Changed(body)
	if err != nil {
		return next, err
	}
	if body.CallingPolicy.Set {
		if err := a.handOnPolicy(ctx, who, next); err != nil {
			return next, err
		}
	}
	return commit(next)
}
