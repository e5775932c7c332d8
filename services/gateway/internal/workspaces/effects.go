package workspaces

import (
	"slices"

	"ringfence.dev/services/gateway/internal/proxy"
)

// AllServices returns the names of the services that use settings of a workspace.
func AllServices() []string {
	return []string{proxy.Wallet, proxy.Calls, proxy.Contacts, proxy.Dialer, proxy.Webhooks}
}

// Services returns the names of the services that must store a PATCH before the gateway responds
// (docs/reference/api/operator-api.md#workspace-fields). It includes the services of a setting
// whose value did not change, because an earlier request may have stored the value only in the
// gateway.
func (c Change) Services() []string {
	set := map[string]bool{}
	for _, setting := range []struct {
		inBody   bool
		services []string
	}{
		{c.Plan.Set, []string{proxy.Dialer, proxy.Webhooks}}, // the plan determines the features
		{c.Status.Set, []string{proxy.Dialer, proxy.Webhooks}},
		{c.CallingPolicy.Set, []string{proxy.Contacts}},
		{c.Features.Set, []string{proxy.Calls, proxy.Dialer, proxy.Webhooks}},
		{c.MaxLiveCalls.Set, []string{proxy.Dialer}},
		{c.CallsPerSecond.Set, []string{proxy.Dialer}},
		{c.Destinations.Set, []string{proxy.Calls, proxy.Dialer}},
		{c.Retention.Set, []string{proxy.Calls, proxy.Dialer, proxy.Webhooks}},
		{c.Inbound.Set, []string{proxy.Dialer}},
	} {
		for _, service := range setting.services {
			set[service] = set[service] || setting.inBody
		}
	}
	return slices.DeleteFunc(AllServices(), func(service string) bool { return !set[service] })
}
