package proxy

import (
	"context"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/settings"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/settingsv1"
)

type settingClients struct {
	owners   map[string]settingsv1.SettingServiceClient
	policies settingsv1.PolicyServiceClient
}

func newSettingClients(keys *serviceauth.Keys, urls map[string]string) settingClients {
	client := serviceauth.Client()
	as := func(service string) connect.ClientOption {
		return connect.WithInterceptors(keys.ClientInterceptor(service))
	}
	c := settingClients{
		owners:   map[string]settingsv1.SettingServiceClient{},
		policies: settingsv1.NewPolicyServiceClient(client, urls[Contacts], as(Contacts)),
	}
	for service, url := range urls {
		c.owners[service] = settingsv1.NewSettingServiceClient(client, url, as(service))
	}
	return c
}

// CheckPolicy sends a calling policy to contacts-compliance for validation. It returns 422
// validation_error if the policy is invalid, and 503 if contacts-compliance does not respond.
func (p *Upstreams) CheckPolicy(ctx context.Context, policy []byte) error {
	ctx, cancel := context.WithTimeout(ctx, settings.Timeout)
	defer cancel()
	checked, err := p.settings.policies.CheckPolicy(ctx, connect.NewRequest(
		&settingsv1.CheckPolicyRequest{PolicyJson: policy}))
	switch code := connect.CodeOf(err); {
	case err == nil && checked.Msg.GetFault() != "":
		return apierr.Unprocessable("validation_error", "%s", checked.Msg.GetFault())
	case err == nil:
		return nil
	case code == connect.CodeUnauthenticated, code == connect.CodePermissionDenied:
		return fmt.Errorf("check calling policy: %w", err)
	}
	slog.WarnContext(ctx, "calling policy not validated, contacts-compliance did not respond", "error", err)
	return apierr.Unavailable("This part of the service")
}

// ApplyWorkspace sends a committed workspace to the given services. It returns when each service
// has stored the workspace. The errors are those of settings.Confirm, and their messages begin with
// subject.
func (p *Upstreams) ApplyWorkspace(ctx context.Context, subject string, event *eventv1.WorkspaceEvent,
	services []string) error {
	apply := map[string]func(context.Context) error{}
	for _, service := range services {
		apply[service] = func(ctx context.Context) error {
			_, err := p.settings.owners[service].ApplySetting(ctx, connect.NewRequest(&settingsv1.ApplySettingRequest{
				Setting: &settingsv1.ApplySettingRequest_Workspace{Workspace: event},
			}))
			return err
		}
	}
	return settings.Confirm(ctx, subject, apply)
}
