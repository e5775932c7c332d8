package operator

import (
	"bytes"
	"context"
	"errors"
	"net/http"
)

type agents struct {
	List   agentsList   `cmd:"" help:"List agents."`
	Show   agentsShow   `cmd:"" help:"Show an agent with all its settings."`
	Add    agentsAdd    `cmd:"" help:"Create an agent: --file agent.json, --set from_number=+14155550100."`
	Change agentsChange `cmd:"" help:"Change settings of an agent."`
	Remove agentsRemove `cmd:"" help:"Delete an agent. Its queued calls end as blocked."`
	Key    agentsKey    `cmd:"" help:"Read the agent's own API key for its model provider from standard input and store it encrypted."`
	Unkey  agentsUnkey  `cmd:"" help:"Delete the agent's own API key for its model provider."`
}

type agentsList struct{ Listed }

func (c agentsList) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("agents"), nil, c.Listed, "id", "name", "kind", "from_number", "longest=max_call_seconds",
		"model", "retires=retiring_models.retires_on", "created_at")
}

type agent struct {
	Agent string `arg:"" help:"Id of the agent."`
}

type agentsShow struct{ agent }

func (c agentsShow) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("agents", c.Agent), nil)
}

type agentsAdd struct {
	Name string `arg:"" help:"Name of the new object."`
	Settings
}

// Validate refuses an empty name.
func (c agentsAdd) Validate() error { return requireName(c.Name) }

func (c agentsAdd) Run(ctx context.Context, o *WorkspaceClient) error {
	body, err := c.Body(ctx, map[string]any{"name": c.Name})
	if err != nil {
		return err
	}
	remarkExperimental(o, body)
	return o.Write(ctx, http.MethodPost, o.at("agents"), body)
}

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
	if err := c.Confirm(ctx, o.Client, "This deletes agent %s permanently, and its queued calls end as blocked",
		c.Agent); err != nil {
		return err
	}
	return o.Show(ctx, http.MethodDelete, o.at("agents", c.Agent), nil)
}

type agentsKey struct{ agent }

func (c agentsKey) Run(ctx context.Context, o *WorkspaceClient) error {
	if Attended() {
		return errors.New("standard input is the terminal, which would show the key: send it through a pipe or from a " +
			"file, `ringfence agents key AGENT < FILE`")
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
	if err := c.Confirm(ctx, o.Client, "This deletes the API key of agent %s permanently", c.Agent); err != nil {
		return err
	}
	return o.Show(ctx, http.MethodDelete, o.at("agent-keys", c.Agent), nil)
}

type numbers struct {
	List   numbersList   `cmd:"" help:"List phone numbers."`
	Add    numbersAdd    `cmd:"" help:"Assign a number to an agent. The agent answers calls to the number, and agents can use the number as caller number."`
	Remove numbersRemove `cmd:"" help:"Remove a number."`
}

type numbersList struct{ Listed }

func (c numbersList) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("numbers"), nil, c.Listed, "id", "number=phone_e164", "agent_id", "created_at")
}

type numbersAdd struct {
	Number string `arg:"" help:"Phone number in E.164: +14155550100."`
	agent
}

func (c numbersAdd) Run(ctx context.Context, o *WorkspaceClient) error {
	if shortID.MatchString(c.Agent) {
		id, err := o.findID(ctx, o.at("agents"), c.Agent)
		if err != nil {
			return err
		}
		c.Agent = id
	}
	return o.Show(ctx, http.MethodPost, o.at("numbers"), map[string]any{"phone_e164": c.Number, "agent_id": c.Agent})
}

type numbersRemove struct {
	ID string `arg:"" help:"Id of the number."`
	Confirmation
}

func (c numbersRemove) Run(ctx context.Context, o *WorkspaceClient) error {
	if err := c.Confirm(ctx, o.Client, "This removes number %s: inbound calls to it are refused", c.ID); err != nil {
		return err
	}
	return o.Show(ctx, http.MethodDelete, o.at("numbers", c.ID), nil)
}

type trunks struct {
	List          trunksList          `cmd:"" help:"List trunks with their state: up, down, unknown, circuit_open, mixed, disabled."`
	Show          trunksShow          `cmd:"" help:"Show a trunk with its state at each replica. The password is not shown."`
	Add           trunksAdd           `cmd:"" help:"Create a trunk: --file trunk.json. The file contains the password."`
	Change        trunksChange        `cmd:"" help:"Change settings of a trunk: --set status=disabled."`
	Remove        trunksRemove        `cmd:"" help:"Delete a trunk. Its calls in progress continue."`
	RejectedCalls trunksRejectedCalls `cmd:"" help:"List the last 20 inbound calls from unknown addresses or to unknown numbers."`

	Check trunksCheck `cmd:"" help:"Test a trunk without a call: DNS, TLS, OPTIONS, digest. The exit status is 1 if a step failed."`
	Trace trunksTrace `cmd:"" help:"Show the SIP messages of a trunk that were recorded since --set trace=true."`
}

type trunksList struct{ Listed }

func (c trunksList) Run(ctx context.Context, d *Client) error {
	return d.List(ctx, At("trunks"), nil, c.Listed, "id", "name", "state", "host", "transport", "registered",
		"answer=last_answer.status", "answered_at=last_answer.at", "in_use=channels_in_use", "channels",
		"calls=recent.calls", "failures=recent.failures", "error_rate=recent.error_rate")
}

type trunk struct {
	Trunk string `arg:"" help:"Name or id of the trunk."`
}

type trunksShow struct{ trunk }

func (c trunksShow) Run(ctx context.Context, d *Client) error {
	id, err := trunkID(ctx, d, c.Trunk)
	if err != nil {
		return err
	}
	return d.Show(ctx, http.MethodGet, At("trunks", id), nil)
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
	id, err := trunkID(ctx, d, c.Trunk)
	if err != nil {
		return err
	}
	return d.Write(ctx, http.MethodPatch, At("trunks", id), body)
}

type trunksRemove struct {
	trunk
	Confirmation
}

func (c trunksRemove) Run(ctx context.Context, d *Client) error {
	if err := c.Confirm(ctx, d, "This deletes trunk %s and its password permanently", c.Trunk); err != nil {
		return err
	}
	id, err := trunkID(ctx, d, c.Trunk)
	if err != nil {
		return err
	}
	return d.Show(ctx, http.MethodDelete, At("trunks", id), nil)
}
