// Package contract tests the HTTP APIs of a running stack against docs/reference/api. The stack has
// two replicas of everything. Each test creates its own workspaces. Every response and every
// webhook is validated with the OpenAPI description. When all tests have run, every documented
// response must have occurred.
package contract
