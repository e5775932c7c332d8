// Package contract holds the tests that hold the running service against the specification and contract.md, row by row, over
// HTTP alone. They share one stack with two replicas of everything; each test brings its own workspaces.
package contract
