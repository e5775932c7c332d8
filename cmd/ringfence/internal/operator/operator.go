// Package operator implements the commands of an operator. There is one command for each operation
// of /admin/v1 (docs/reference/api/operator-api.md). Other commands run a service's binary.
package operator

import (
	"errors"
)

// Commands contains the commands, grouped by subject, in the order in which an operator needs them
// for a new customer.
type Commands struct {
	Workspaces  workspaces          `cmd:"" group:"operator" help:"Workspaces: plan, status, features, limits, calling policy, retention."`
	Keys        keys                `cmd:"" group:"operator" help:"API keys of the workspace."`
	Agents      agents              `cmd:"" group:"operator" help:"AI agents of the workspace, and their keys at the model's provider."`
	Numbers     numbers             `cmd:"" group:"operator" help:"Telephone numbers of the workspace and the agents that answer them."`
	Trunks      trunks              `cmd:"" group:"operator" help:"SIP trunks for outbound and inbound calls."`
	Wallet      wallet              `cmd:"" group:"operator" help:"Credit of the workspace: balance, top-ups, adjustments, rates."`
	Usage       usage               `cmd:"" group:"operator" help:"Calls, talk time and credits of a month as CSV."`
	Contacts    contacts            `cmd:"" group:"operator" help:"Contacts of the workspace: consent, previews, records, decisions, erasure."`
	OptOuts     optOuts             `cmd:"" group:"operator" help:"Numbers that must not be called, added one by one or from a file."`
	Calls       calls               `cmd:"" group:"operator" help:"Calls and call requests of the workspace, and the reason if a call was not placed."`
	Dialing     dialing             `cmd:"" group:"operator" help:"Pause and resume dialing: of everything, a workspace, an agent or a trunk."`
	Webhooks    webhooks            `cmd:"" group:"operator" help:"Webhook subscriptions of the workspace, their deliveries, and replay."`
	People      peopleCommands      `cmd:"" group:"operator" help:"People who use the console: roles, sessions, lost passkeys."`
	Members     membersCommands     `cmd:"" group:"operator" help:"People with a role in the workspace."`
	Invitations invitationsCommands `cmd:"" group:"operator" help:"Links with which people join the workspace or become operators."`
	Audit       audit               `cmd:"" group:"operator" help:"Log of the changes that operators made."`
	Status      status              `cmd:"" group:"operator" help:"State of services, trunks, models and queue; workspaces with an empty wallet or a failing webhook endpoint. The exit status is 1 if a service, a trunk or a model is down."`
	Services    services            `cmd:"" group:"operator" help:"Commands of the services' binaries: parked records, reconciliation of wallets, consent log, encrypted secrets."`
}

// Named is the workspace id from the flag -w or from the environment. It is empty if neither
// contains an id. The id of the default workspace is not used.
type Named string

// WorkspaceOpener returns the client of the workspace. It returns an error if no workspace was
// given. It is for commands that need a workspace only with some of their flags.
type WorkspaceOpener func() (*WorkspaceClient, error)

// WorkspaceClient is a Client with a workspace.
type WorkspaceClient struct {
	*Client
	workspace string
}

// reasoned is the flag of a change whose reason the audit log stores.
type reasoned struct {
	Reason string `placeholder:"TEXT" help:"Why. The audit log contains the reason."`
}

// with returns a client that sends the reason with each request.
func (r reasoned) with(d *Client) *Client {
	with := *d
	with.reason = r.Reason
	return &with
}

// client returns a client of the workspace that sends the reason with each request.
func (r reasoned) client(o *WorkspaceClient) *WorkspaceClient {
	return &WorkspaceClient{Client: r.with(o.Client), workspace: o.workspace}
}

// NewWorkspaceClient returns a client for the workspace. It returns an error if the id is empty.
func NewWorkspaceClient(at *Client, workspace string) (*WorkspaceClient, error) {
	if workspace == "" {
		return nil, errors.New("no workspace was given: use -w ID or RINGFENCE_WORKSPACE; `ringfence workspaces list` " +
			"lists them")
	}
	return &WorkspaceClient{Client: at, workspace: workspace}, nil
}

func (o *WorkspaceClient) at(segments ...string) string {
	return At(append([]string{"workspaces", o.workspace}, segments...)...)
}
