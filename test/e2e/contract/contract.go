// Package contract holds the tests that hold the running service against the specification and contract.md, row by row, over
// HTTP alone. They share one stack with two replicas of everything; each test brings its own workspaces. Every answer and every webhook is
// held against the interface description on its way (package validating), and all tests together must have seen all of it.
package contract
