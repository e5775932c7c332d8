package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

type dialing struct {
	Show   dialingShow   `cmd:"" help:"Show whether dialing is paused: the state, who set it, when and why."`
	Pause  dialingPause  `cmd:"" help:"Pause dialing. No dial starts later than 2 seconds after the response. Requests stay queued, and calls in progress continue."`
	Resume dialingResume `cmd:"" help:"Resume dialing."`
}

// scope selects what the commands apply to. Without a flag, they apply to the workspace.
type scope struct {
	Everything bool   `xor:"scope" help:"All dialing of this deployment."`
	Agent      string `xor:"scope" placeholder:"ID" help:"Only this agent of the workspace."`
	Trunk      string `xor:"scope" placeholder:"NAME" help:"Only this trunk, by name or id."`
}

func (s scope) path(ctx context.Context, d *Client, openWorkspace WorkspaceOpener) (string, error) {
	switch {
	case s.Everything:
		return At("dialing"), nil
	case s.Trunk != "":
		id, err := trunkID(ctx, d, s.Trunk)
		if err != nil {
			return "", err
		}
		return At("trunks", id, "dialing"), nil
	}
	o, err := openWorkspace()
	if err != nil {
		return "", err
	}
	if s.Agent != "" {
		return o.at("agents", s.Agent, "dialing"), nil
	}
	return o.at("dialing"), nil
}

type dialingShow struct{ scope }

func (c dialingShow) Run(ctx context.Context, d *Client, workspace WorkspaceOpener) error {
	path, err := c.path(ctx, d, workspace)
	if err != nil {
		return err
	}
	return d.Show(ctx, http.MethodGet, path, nil)
}

type dialingPause struct {
	Reason string        `arg:"" help:"Why dialing is paused. It is stored with the pause and in the audit log."`
	For    time.Duration `xor:"end" placeholder:"DURATION" help:"The pause ends by itself after this time: 30m, 2h."`
	Until  string        `xor:"end" placeholder:"TIME" help:"The pause ends by itself at this time: 2026-06-04T09:00:00Z."`
	scope
}

// Validate refuses a duration that is not positive.
func (c dialingPause) Validate() error {
	if c.For < 0 {
		return errors.New("--for must be positive")
	}
	return nil
}

func (c dialingPause) Run(ctx context.Context, d *Client, workspace WorkspaceOpener) error {
	body := map[string]any{"state": "paused", "reason": c.Reason}
	switch {
	case c.For > 0:
		body["until"] = time.Now().Add(c.For).UTC().Format(time.RFC3339)
	case c.Until != "":
		body["until"] = c.Until
	}
	return c.set(ctx, d, workspace, body)
}

type dialingResume struct {
	Reason string `arg:"" optional:"" help:"Why dialing is resumed. It is stored with the state and in the audit log."`
	scope
}

func (c dialingResume) Run(ctx context.Context, d *Client, workspace WorkspaceOpener) error {
	body := map[string]any{"state": "active"}
	if c.Reason != "" {
		body["reason"] = c.Reason
	}
	return c.set(ctx, d, workspace, body)
}

func (s scope) set(ctx context.Context, d *Client, workspace WorkspaceOpener, body map[string]any) error {
	path, err := s.path(ctx, d, workspace)
	if err != nil {
		return err
	}
	return d.Show(ctx, http.MethodPut, path, body)
}

type callsHangup struct {
	Call string `arg:"" optional:"" help:"Id of the call."`
	All  bool   `help:"Hang up all calls of the workspace."`
	reasoned
}

// Validate requires a call or --all.
func (c callsHangup) Validate() error {
	if c.All == (c.Call != "") {
		return errors.New("name a call, or use --all")
	}
	return nil
}

func (c callsHangup) Run(ctx context.Context, o *WorkspaceClient) error {
	o = c.client(o)
	if c.All {
		return o.Show(ctx, http.MethodPost, o.at("hangup"), nil)
	}
	return o.Show(ctx, http.MethodPost, o.at("calls", c.Call, "hangup"), nil)
}

// pausedScope is a pause that has not ended.
type pausedScope struct {
	Level, Reason string
	ID            string
	Until         *time.Time
	SetBy         struct{ Type, Name, ID string } `json:"set_by"`
	SetAt         time.Time                       `json:"set_at"`
}

// describe returns the line that `status` prints.
func (p pausedScope) describe() string {
	name := p.Level
	if p.ID != "" {
		name += " " + p.ID
	}
	by := p.SetBy.Name
	switch {
	case by != "":
	case p.SetBy.Type == "user":
		by = "user " + p.SetBy.ID
	default:
		by = "API key " + p.SetBy.ID
	}
	text := fmt.Sprintf("%s, by %s at %s: %s", name, by, p.SetAt.Format(time.RFC3339), p.Reason)
	if p.Until != nil {
		text += ", until " + p.Until.Format(time.RFC3339)
	}
	return text
}
