// Package alerts tests dashboards and alerts with the whole stack and a real Prometheus. The query
// of every panel must return data under load. Each fault's alert must fire and resolve. The rules'
// durations are shortened from hours to minutes.
package alerts
