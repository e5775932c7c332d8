// Package contract tests the HTTP APIs of a running stack with two replicas of everything against
// docs/reference/api. Each test creates its own workspaces. Every response and every webhook is
// validated with the OpenAPI description, and all tests together must have seen every documented
// response.
package contract
