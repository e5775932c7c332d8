// Package webhooks tests the delivery of webhooks under faults: endpoints that fail, hang or
// recover, pauses, killed dispatchers, replicas, and key rotation. The tests run the real binaries,
// use HTTPS receivers, and publish records to call-events.v1 as the service `calls` does. They
// share a stack with two replicas of everything. Each test creates its own workspaces.
package webhooks
