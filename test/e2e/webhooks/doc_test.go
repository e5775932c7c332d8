// Package webhooks holds the tests of what a customer's endpoint meets when something breaks: endpoints that fail, hang, lie or come back, pauses,
// killed dispatchers, replicas, and keys that are replaced. They run the real binaries, speak to real HTTPS receivers and put records on
// call-events.v1 as calls does. One stack with two replicas of everything is shared; each test brings its own workspaces.
package webhooks
