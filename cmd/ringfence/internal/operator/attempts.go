package operator

import (
	"context"
	"net/url"
)

type callsAttempts struct {
	ID string `arg:"" help:"Id of a call or of a call request. Inbound calls have no call request."`
	Listed
}

func attemptColumns() []string {
	return []string{"started_at", "attempt", "trunk", "sip_status", "sip_reason", "hangup_cause", "error", "sip_call_id"}
}

func (c callsAttempts) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("attempts"), url.Values{"of": {c.ID}}, c.Listed, attemptColumns()...)
}
