package operator

import (
	"bytes"
	"context"
	"errors"
	"net/http"
)

type agents struct {
	List   agentsList   `cmd:"" help:"List them."`
	Show   agentsShow   `cmd:"" help:"Show one with all its settings."`
	Add    agentsAdd    `cmd:"" help:"Make one: --file agent.json, --set from_number=+14155550100."`
	Change agentsChange `cmd:"" help:"Change settings of one."`
	Remove agentsRemove `cmd:"" help:"Delete one: its queued calls end blocked."`
	Key    agentsKey    `cmd:"" help:"Keep the agent's own key at its model's provider, read from standard input and sealed."`
	Unkey  agentsUnkey  `cmd:"" help:"Forget the agent's own key."`
}

type agentsList struct{ Listed }

func (c agentsList) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("agents"), nil, c.Listed, "id", "name", "kind", "from_number", "longest=max_call_seconds",
		"model", "retires=retiring_models.retires_on", "created_at")
}

// agent is the argument of the commands for one agent.
type agent struct {
	Agent string `arg:"" help:"The agent's id."`
}

type agentsShow struct{ agent }

func (c agentsShow) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("agents", c.Agent), nil)
}

type agentsAdd struct {
	Name string `arg:"" help:"Its name."`
	Settings
}

// Validate refuses an empty name.
func (c agentsAdd) Validate() error { return named(c.Name) }

func (c agentsAdd) Run(ctx context.Context, o *WorkspaceClient) error {
	body, err := c.Body(ctx, map[string]any{"name": c.Name})
	if err != nil {
		return err
	}
	remarkExperimental(o, body)
	return o.Write(ctx, http.MethodPost, o.at("agents"), body)
}

// remarkExperimental prints a remark if the kind of the agent is experimental.
func remarkExperimental(o *WorkspaceClient, body map[string]any) {
	if body["kind"] == "openai_live" {
		o.Remark("The kind openai_live is experimental: its settings and behaviour can change in any version.")
	}
}

type agentsChange struct {
	agent
	Settings
}

func (c agentsChange) Run(ctx context.Context, o *WorkspaceClient) error {
	body, err := c.Body(ctx, nil)
	if err != nil {
		return err
	}
	remarkExperimental(o, body)
	return o.Write(ctx, http.MethodPatch, o.at("agents", c.Agent), body)
}

type agentsRemove struct {
	agent
	Confirmation
}

func (c agentsRemove) Run(ctx context.Context, o *WorkspaceClient) error {
	if err := c.Confirm(ctx, o.Client, "This deletes agent %s for good, and what is queued for it ends blocked", c.Agent); err != nil {
		return err
	}
	return o.Show(ctx, http.MethodDelete, o.at("agents", c.Agent), nil)
}

type agentsKey struct{ agent }

func (c agentsKey) Run(ctx context.Context, o *WorkspaceClient) error {
	if Attended() {
		return errors.New("standard input is the terminal, which would show the key: send it by a pipe or from a file, `ringfence agents key AGENT < FILE`")
	}
	key, err := Contents(ctx, "-")
	if err != nil {
		return err
	}
	return o.Show(ctx, http.MethodPut, o.at("agent-keys", c.Agent), map[string]any{"key": string(bytes.TrimSpace(key))})
}

type agentsUnkey struct {
	agent
	Confirmation
}

func (c agentsUnkey) Run(ctx context.Context, o *WorkspaceClient) error {
	if err := c.Confirm(ctx, o.Client, "This forgets the key of agent %s for good", c.Agent); err != nil {
		return err
	}
	return o.Show(ctx, http.MethodDelete, o.at("agent-keys", c.Agent), nil)
}

type numbers struct {
	List   numbersList   `cmd:"" help:"List them."`
	Add    numbersAdd    `cmd:"" help:"Give a number to an agent: calls to it reach the agent, and agents may call from it."`
	Remove numbersRemove `cmd:"" help:"Take a number away."`
}

type numbersList struct{ Listed }

func (c numbersList) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("numbers"), nil, c.Listed, "id", "number=phone_e164", "agent_id", "created_at")
}

type numbersAdd struct {
	Number string `arg:"" help:"In E.164, +14155550100."`
	agent
}

func (c numbersAdd) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodPost, o.at("numbers"), map[string]any{"phone_e164": c.Number, "agent_id": c.Agent})
}

type numbersRemove struct {
	ID string `arg:"" help:"The number's id."`
	Confirmation
}

func (c numbersRemove) Run(ctx context.Context, o *WorkspaceClient) error {
	if err := c.Confirm(ctx, o.Client, "This removes number %s: inbound calls to it are refused", c.ID); err != nil {
		return err
	}
	return o.Show(ctx, http.MethodDelete, o.at("numbers", c.ID), nil)
}

type trunks struct {
	List      trunksList      `cmd:"" help:"List them with their state: up, down, unknown, circuit_open, mixed, disabled."`
	Show      trunksShow      `cmd:"" help:"Show one with its state at each replica; its password never shows."`
	Add       trunksAdd       `cmd:"" help:"Make one: --file trunk.json, with the password in it."`
	Change    trunksChange    `cmd:"" help:"Change settings of one: --set status=disabled."`
	Remove    trunksRemove    `cmd:"" help:"Delete one; calls under way on it go on."`
	Strangers trunksStrangers `cmd:"" help:"List the last 20 inbound calls from unknown addresses or to unknown numbers."`

	Check trunksCheck `cmd:"" help:"Test one without a call: DNS, TLS, OPTIONS, digest. Exit status 1 if a step failed."`
	Trace trunksTrace `cmd:"" help:"Show the SIP messages of one, recorded since --set trace=true."`
}

type trunksList struct{ Listed }

func (c trunksList) Run(ctx context.Context, d *Client) error {
	return d.List(ctx, At("trunks"), nil, c.Listed, "id", "name", "state", "host", "transport", "registered",
		"answer=last_answer.status", "answered_at=last_answer.at", "in_use=channels_in_use", "channels",
		"calls=recent.calls", "failures=recent.failures", "error_rate=recent.error_rate")
}

// trunk is the argument of the commands for one trunk.
type trunk struct {
	Trunk string `arg:"" help:"The trunk's id."`
}

type trunksShow struct{ trunk }

func (c trunksShow) Run(ctx context.Context, d *Client) error {
	return d.Show(ctx, http.MethodGet, At("trunks", c.Trunk), nil)
}

type trunksAdd struct{ Settings }

func (c trunksAdd) Run(ctx context.Context, d *Client) error {
	body, err := c.Body(ctx, nil)
	if err != nil {
		return err
	}
	return d.Write(ctx, http.MethodPost, At("trunks"), body)
}

type trunksChange struct {
	trunk
	Settings
}

func (c trunksChange) Run(ctx context.Context, d *Client) error {
	body, err := c.Body(ctx, nil)
	if err != nil {
		return err
	}
	return d.Write(ctx, http.MethodPatch, At("trunks", c.Trunk), body)
}

type trunksRemove struct {
	trunk
	Confirmation
}

func (c trunksRemove) Run(ctx context.Context, d *Client) error {
	if err := c.Confirm(ctx, d, "This deletes trunk %s for good, with its password", c.Trunk); err != nil {
		return err
	}
	return d.Show(ctx, http.MethodDelete, At("trunks", c.Trunk), nil)
}
