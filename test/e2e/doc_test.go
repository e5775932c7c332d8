// Package e2e holds the tests that drive the whole of Ringfence from outside: the six real
// binaries, a real Postgres, the Kafka protocol, a carrier in a process of its own, HTTPS receivers.
package e2e
