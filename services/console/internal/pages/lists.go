package pages

import (
	"net/url"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/services/console/internal/gateway"
)

// listQuery copies the filters of a list from the URL of the page to a request of the API. A time
// in the URL has no time zone, so the time zone of the person applies.
func (v *visit) listQuery(filters ...string) url.Values {
	query := url.Values{"limit": {"50"}}
	for _, name := range append(filters, "starting_after") {
		if value := v.query(name); value != "" {
			query.Set(name, value)
		}
	}
	if to := query.Get("to"); to != "" {
		query.Set("to", phoneOf(to))
	}
	for _, name := range []string{"created_after", "created_before"} {
		if at, ok := v.localTime(v.query(name)); ok && query.Has(name) {
			query.Set(name, at)
		}
	}
	return query
}

// phoneOf returns a number in the form that the API requires: a plus sign and digits. The plus sign
// can be missing in the text, because URL decoding changes it to a space.
func phoneOf(text string) string {
	digits := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, text)
	digits = strings.TrimPrefix(digits, "00")
	if digits == "" {
		return text
	}
	return "+" + digits
}

// concurrently runs the reads at the same time and returns the first error.
func concurrently(reads ...func() error) error {
	var group errgroup.Group
	for _, read := range reads {
		group.Go(read)
	}
	return group.Wait()
}

// read returns a function that reads one resource into a variable.
func read[T any](v *visit, into *T, path string, query url.Values) func() error {
	return func() (err error) {
		*into, err = gateway.Get[T](v.r.Context(), v.Session, path, query)
		return err
	}
}

// readTagged is like [read]. It also stores the ETag of the resource in version.
func readTagged[T any](v *visit, into *T, version *string, path string) func() error {
	return func() (err error) {
		*into, *version, err = gateway.GetTagged[T](v.r.Context(), v.Session, path)
		return err
	}
}

// readOptional is like [read], but the returned function ignores errors.
func readOptional[T any](v *visit, into *T, path string, query url.Values) func() error {
	return func() error {
		if found, err := gateway.Get[T](v.r.Context(), v.Session, path, query); err == nil {
			*into = found
		}
		return nil
	}
}

// agentNames maps the ids of agents to their names. An agent that is not in the list is named by
// the start of its id.
type agentNames []gateway.Agent

// Name returns the name of an agent.
func (a agentNames) Name(id uuid.UUID) string {
	for _, agent := range a {
		if agent.ID == id {
			return agent.Name
		}
	}
	return id.String()[:8]
}

// readAgents reads the names of the agents of the workspace.
func (v *visit) readAgents(into *gateway.Page[gateway.Agent]) func() error {
	return readOptional(v, into, v.admin("/agents"), url.Values{"limit": {"100"}})
}
