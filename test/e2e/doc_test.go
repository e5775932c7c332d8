// Package e2e tests the whole of Ringfence from outside: the six services, Postgres, the Kafka
// protocol, the simulated carrier as a separate process, and HTTPS receivers.
package e2e
