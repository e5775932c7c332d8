package operator

import (
	"context"
	"net/http"
)

type peopleCommands struct {
	List     peopleList     `cmd:"" help:"List the people who use the console."`
	Show     peopleShow     `cmd:"" help:"Show a person with all roles."`
	Sessions peopleSessions `cmd:"" help:"List the sessions of a person that have not ended."`
	SignOut  peopleSignOut  `cmd:"" help:"End all sessions of a person, within 5 seconds."`
	Recover  peopleRecover  `cmd:"" help:"Print a link with which a person registers a new passkey. It works once, for 24 hours."`
	Demote   peopleDemote   `cmd:"" help:"Remove the role operator from a person. The last operator keeps the role."`
}

type peopleList struct{ Listed }

func (c peopleList) Run(ctx context.Context, d *Client) error {
	return d.List(ctx, At("people"), nil, c.Listed, "id", "name", "email", "created_at")
}

// onePerson is the argument of commands about one person.
type onePerson struct {
	Person string `arg:"" help:"Id of the person."`
}

type peopleShow struct{ onePerson }

func (c peopleShow) Run(ctx context.Context, d *Client) error {
	return d.Show(ctx, http.MethodGet, At("people", c.Person), nil)
}

type peopleSessions struct{ onePerson }

func (c peopleSessions) Run(ctx context.Context, d *Client) error {
	return d.listUnpaged(ctx, At("people", c.Person, "sessions"),
		"id", "method", "signed_in_at", "last_used_at", "expires_at")
}

type peopleSignOut struct {
	onePerson
	reasoned
}

func (c peopleSignOut) Run(ctx context.Context, d *Client) error {
	return c.with(d).Show(ctx, http.MethodDelete, At("people", c.Person, "sessions"), nil)
}

type peopleRecover struct {
	onePerson
	Confirmation
	reasoned
}

func (c peopleRecover) Run(ctx context.Context, d *Client) error {
	if err := c.Confirm(ctx, d, "This prints a link with which anyone can sign in as person %s. Its use deletes the "+
		"person's passkeys", c.Person); err != nil {
		return err
	}
	return c.with(d).Show(ctx, http.MethodPost, At("people", c.Person, "recovery"), nil)
}

type peopleDemote struct {
	onePerson
	Confirmation
	reasoned
}

func (c peopleDemote) Run(ctx context.Context, d *Client) error {
	if err := c.Confirm(ctx, d, "This removes the role operator from person %s", c.Person); err != nil {
		return err
	}
	return c.with(d).Show(ctx, http.MethodDelete, At("people", c.Person, "operator"), nil)
}

type membersCommands struct {
	List   membersList   `cmd:"" help:"List the members of the workspace."`
	Show   membersShow   `cmd:"" help:"Show a member."`
	Change membersChange `cmd:"" help:"Change the role of a member. The last owner keeps the role."`
	Remove membersRemove `cmd:"" aliases:"delete" help:"Remove a member from the workspace. The last owner cannot be removed."`
}

type membersList struct{ Listed }

func (c membersList) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("members"), nil, c.Listed, "id", "name", "email", "role", "from_groups", "created_at")
}

type membersShow struct{ onePerson }

func (c membersShow) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("members", c.Person), nil)
}

type membersChange struct {
	onePerson
	Role string `arg:"" enum:"owner,developer,compliance,viewer" help:"New role: owner, developer, compliance or viewer."`
	reasoned
}

func (c membersChange) Run(ctx context.Context, o *WorkspaceClient) error {
	return c.client(o).Show(ctx, http.MethodPatch, o.at("members", c.Person), map[string]any{"role": c.Role})
}

type membersRemove struct {
	onePerson
	Confirmation
	reasoned
}

func (c membersRemove) Run(ctx context.Context, o *WorkspaceClient) error {
	if err := c.Confirm(ctx, o.Client, "This removes person %s from workspace %s", c.Person, o.workspace); err != nil {
		return err
	}
	return c.client(o).Show(ctx, http.MethodDelete, o.at("members", c.Person), nil)
}

type invitationsCommands struct {
	List     invitationsList     `cmd:"" help:"List invitations. With --operators, also recovery links."`
	Show     invitationsShow     `cmd:"" help:"Show an invitation."`
	Add      invitationsAdd      `cmd:"" aliases:"create" help:"Invite a person and print the link. It works once, for 7 days."`
	Withdraw invitationsWithdraw `cmd:"" aliases:"remove,delete" help:"Withdraw an invitation that was not accepted."`
}

// invited selects the invitations to the workspace, or those of operators.
type invited struct {
	Operators bool `help:"The invitations of operators and the recovery links, which belong to no workspace."`
}

// path returns the path of the selected invitations.
func (i invited) path(workspace WorkspaceOpener, id ...string) (string, error) {
	if i.Operators {
		return At(append([]string{"operator-invitations"}, id...)...), nil
	}
	o, err := workspace()
	if err != nil {
		return "", err
	}
	return o.at(append([]string{"invitations"}, id...)...), nil
}

type invitationsList struct {
	invited
	Listed
}

func (c invitationsList) Run(ctx context.Context, d *Client, workspace WorkspaceOpener) error {
	path, err := c.path(workspace)
	if err != nil {
		return err
	}
	columns := []string{"id", "role", "invited_by", "created_at", "expires_at", "accepted_at", "accepted_by"}
	if c.Operators {
		columns = append(columns, "recovers=person_id")
	}
	return d.List(ctx, path, nil, c.Listed, columns...)
}

// invitation is the argument of commands about one invitation.
type invitation struct {
	Invitation string `arg:"" help:"Id of the invitation."`
	invited
}

type invitationsShow struct{ invitation }

func (c invitationsShow) Run(ctx context.Context, d *Client, workspace WorkspaceOpener) error {
	path, err := c.path(workspace, c.Invitation)
	if err != nil {
		return err
	}
	return d.Show(ctx, http.MethodGet, path, nil)
}

type invitationsAdd struct {
	Role string `arg:"" enum:"owner,developer,compliance,viewer,operator" help:"${enum}. Operators use all workspaces."`
	reasoned
}

func (c invitationsAdd) Run(ctx context.Context, d *Client, workspace WorkspaceOpener) error {
	if c.Role == "operator" {
		return c.with(d).Show(ctx, http.MethodPost, At("operator-invitations"), nil)
	}
	o, err := workspace()
	if err != nil {
		return err
	}
	return c.client(o).Show(ctx, http.MethodPost, o.at("invitations"), map[string]any{"role": c.Role})
}

type invitationsWithdraw struct {
	invitation
	reasoned
}

func (c invitationsWithdraw) Run(ctx context.Context, d *Client, workspace WorkspaceOpener) error {
	path, err := c.path(workspace, c.Invitation)
	if err != nil {
		return err
	}
	return c.with(d).Show(ctx, http.MethodDelete, path, nil)
}
