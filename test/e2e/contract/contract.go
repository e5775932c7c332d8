// Package contract tests the HTTP APIs of a running stack against docs/reference/api. The stack has
// two replicas of everything. Each test creates its own workspaces. Every response and every
// webhook is validated with the OpenAPI description. All tests together must have received every
// documented response.
package contract
