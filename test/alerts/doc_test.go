// Package alerts holds dashboards and alerts against the whole stack and a real Prometheus: every panel's query has data under load, and what faults of this
// stack can cause fires and goes, with the rules' hours made minutes. It is tests alone.
package alerts
