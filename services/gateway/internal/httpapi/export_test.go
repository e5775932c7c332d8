package httpapi

import (
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"ringfence.dev/services/gateway/internal/people"
)

// ConsoleRule is a row of the role table, for tests.
type ConsoleRule struct {
	Method   string
	Template string
	Roles    []people.Role
	InHeader bool
	InPath   bool
	OfSystem bool
	Recent   bool
	Reason   bool
}

// ConsoleRules returns the role table with one row for each method.
func ConsoleRules() (rules []ConsoleRule) {
	for _, u := range newRoleTable().rules {
		for _, method := range u.methods {
			rules = append(rules, ConsoleRule{
				Method: method, Template: u.template, Roles: u.roles, InHeader: u.scope == inHeader,
				InPath: u.scope == inPath, OfSystem: u.scope == ofSystem, Recent: u.recent, Reason: u.reason,
			})
		}
	}
	return rules
}

// FindConsoleRule returns the template of the rule that the console uses for a request.
func FindConsoleRule(method, path string) (template string, found bool) {
	address, err := url.Parse(path)
	if err != nil {
		return "", false
	}
	u, _, found := newRoleTable().find(method, address)
	return u.template, found
}

// SignInRoutes calls visit for every route of the console that needs no session.
func SignInRoutes(config ConsoleConfig, visit func(method, template string)) error {
	return chi.Walk(newConsole(config).open,
		func(method, template string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			visit(method, template)
			return nil
		})
}

// ConsoleRoutes calls visit for every route of the console's router. The router has the routes of
// the console and of the operator API.
func ConsoleRoutes(config ConsoleConfig, visit func(method, template string)) error {
	return chi.Walk(newConsole(config).router,
		func(method, template string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			visit(method, template)
			return nil
		})
}
