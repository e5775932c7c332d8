package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

type workspaces struct {
	List    workspacesList    `cmd:"" help:"List workspaces."`
	Show    workspacesShow    `cmd:"" help:"Show a workspace with all its settings."`
	Add     workspacesAdd     `cmd:"" aliases:"create" help:"Create a workspace."`
	Change  workspacesChange  `cmd:"" help:"Change settings of a workspace: --set calls_per_second=20, --set features.api=true, --set inbound.per_minute=0.02, --file policy.json."`
	Suspend workspacesSuspend `cmd:"" help:"Suspend a workspace. Within 5 seconds its API keys are refused, its queued calls blocked, and its webhooks held."`
	Resume  workspacesResume  `cmd:"" help:"End the suspension of a workspace."`
}

type workspacesList struct{ Listed }

func (c workspacesList) Run(ctx context.Context, d *Client) error {
	return d.List(ctx, At("workspaces"), nil, c.Listed, "id", "name", "mode", "plan", "status", "currency",
		"max_live_calls", "calls_per_second", "created_at")
}

type workspacesShow struct{}

func (workspacesShow) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at(), nil)
}

type workspacesAdd struct {
	Name     string `arg:"" help:"Name of the new object."`
	Plan     string `default:"" enum:",starter,growth,scale" placeholder:"PLAN" help:"starter, growth (default) or scale."`
	Currency string `placeholder:"CODE" help:"Currency of the wallet, which cannot change. Default: USD or the file's."`
	Mode     string `default:"" enum:",live,test" placeholder:"MODE" help:"live (default) or test. It cannot change."`
	Settings
}

// Validate refuses an empty name, for example from an unset variable.
func (c workspacesAdd) Validate() error { return requireName(c.Name) }

func requireName(name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	return nil
}

func (c workspacesAdd) Run(ctx context.Context, d *Client) error {
	body, err := c.Body(ctx, map[string]any{"name": c.Name, "plan": c.Plan, "currency": c.Currency, "mode": c.Mode})
	if err != nil {
		return err
	}
	for field, standard := range map[string]string{"plan": "growth", "currency": "USD"} {
		if body[field] == nil {
			body[field] = standard
		}
	}
	answer, err := d.Ask(ctx, http.MethodPost, At("workspaces"), body)
	if err != nil {
		return err
	}
	var made struct{ ID, Mode string }
	if err := json.Unmarshal(answer, &made); err != nil {
		return err
	}
	if body["mode"] == "test" && made.Mode != "test" {
		return fmt.Errorf("the gateway is older than this program and created the live workspace %s: suspend it, "+
			"upgrade the gateway, and create another workspace", made.ID)
	}
	return d.printWritten(answer, body)
}

type workspacesChange struct{ Settings }

func (c workspacesChange) Run(ctx context.Context, o *WorkspaceClient) error {
	body, err := c.Body(ctx, nil)
	if err != nil {
		return err
	}
	return o.Write(ctx, http.MethodPatch, o.at(), body)
}

type workspacesSuspend struct {
	Confirmation
	reasoned
}

func (c workspacesSuspend) Run(ctx context.Context, o *WorkspaceClient) error {
	if err := c.Confirm(ctx, o.Client, "This suspends workspace %s: its API keys are refused and its queued calls blocked",
		o.workspace); err != nil {
		return err
	}
	return c.client(o).Show(ctx, http.MethodPatch, o.at(), map[string]any{"status": "suspended"})
}

type workspacesResume struct{}

func (workspacesResume) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodPatch, o.at(), map[string]any{"status": "active"})
}

type keys struct {
	List   keysList   `cmd:"" help:"List API keys without their secrets."`
	Add    keysAdd    `cmd:"" help:"Create an API key. The secret is shown only now."`
	Revoke keysRevoke `cmd:"" help:"Revoke an API key. All replicas refuse it within 5 seconds."`
}

type keysList struct{ Listed }

func (c keysList) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("api-keys"), nil, c.Listed, "id", "name", "access", "prefix", "created_at", "revoked_at")
}

type keysAdd struct {
	Name   string `arg:"" help:"Name that describes the use of the key."`
	Access string `default:"read" enum:"read,write" help:"Access of the key: read or write."`
}

func (c keysAdd) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodPost, o.at("api-keys"), map[string]any{"name": c.Name, "access": c.Access})
}

type keysRevoke struct {
	Key string `arg:"" help:"Id of the API key."`
	Confirmation
}

func (c keysRevoke) Run(ctx context.Context, o *WorkspaceClient) error {
	if err := c.Confirm(ctx, o.Client, "This revokes API key %s permanently", c.Key); err != nil {
		return err
	}
	return o.Show(ctx, http.MethodDelete, o.at("api-keys", c.Key), nil)
}

type audit struct {
	List auditList `cmd:"" help:"List changes by operators and people, newest first. With -w, list all changes of that workspace, and reads of transcripts and recordings."`
	Show auditShow `cmd:"" help:"Show a change with the old and the new values."`
}

type auditList struct {
	Actor  string `placeholder:"ID" help:"Only entries of this API key, person (id) or operator (name). Needs -w."`
	Type   string `help:"Only entries about objects of this type: contact, call_request, api_key, …. Needs -w."`
	Object string `placeholder:"ID" help:"Only entries about this object. Needs -w."`
	Listed
}

func (c auditList) Run(ctx context.Context, d *Client, of Named) error {
	if of != "" {
		filter := url.Values{"actor_id": {c.Actor}, "object_type": {c.Type}, "object_id": {c.Object}}
		return d.List(ctx, At("workspaces", string(of), "audit"), filter, c.Listed,
			"id", "at", "actor_type", "actor_name", "action", "object_id", "request_id")
	}
	if c.Actor != "" || c.Type != "" || c.Object != "" {
		return errors.New("--actor, --type and --object need a workspace: add -w ID")
	}
	return d.List(ctx, At("audit"), nil, c.Listed, "id", "occurred_at", "operator", "method", "route", "status",
		"outcome", "workspace_id")
}

type auditShow struct {
	Entry string `arg:"" help:"Id of the entry."`
}

func (c auditShow) Run(ctx context.Context, d *Client) error {
	return d.Show(ctx, http.MethodGet, At("audit", c.Entry), nil)
}
