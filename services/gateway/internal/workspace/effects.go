package workspace

import (
	"slices"

	"ringfence.dev/services/gateway/internal/route"
)

// AllServices returns the services that act on settings of a workspace.
func AllServices() []string {
	return []string{route.Wallet, route.Calls, route.Contacts, route.Dialer, route.Webhooks}
}

// Services returns the services that act on the settings in the body of PATCH. Each of them must store
// the change before it is answered (contract.md 7.3). A setting counts if it is in the body, even if
// its value is the stored one: an earlier request may have stored the value without confirmation.
func (c Change) Services() []string {
	set := map[string]bool{}
	for _, setting := range []struct {
		inBody   bool
		services []string
	}{
		{c.Plan.Set, []string{route.Dialer, route.Webhooks}}, // the plan decides features
		{c.Status.Set, []string{route.Dialer, route.Webhooks}},
		{c.CallingPolicy.Set, []string{route.Contacts}},
		{c.Features.Set, []string{route.Calls, route.Dialer, route.Webhooks}},
		{c.MaxLiveCalls.Set, []string{route.Dialer}},
		{c.CallsPerSecond.Set, []string{route.Dialer}},
		{c.Destinations.Set, []string{route.Calls, route.Dialer}},
		{c.Retention.Set, []string{route.Calls, route.Dialer, route.Webhooks}},
	} {
		for _, service := range setting.services {
			set[service] = set[service] || setting.inBody
		}
	}
	return slices.DeleteFunc(AllServices(), func(service string) bool { return !set[service] })
}
