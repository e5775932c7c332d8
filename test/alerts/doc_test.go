// Package alerts tests dashboards and alerts with the whole stack and a real Prometheus. The query
// of every panel has data under load, and the alert of each fault fires and resolves. The hours in
// the rules are shortened to minutes.
package alerts
