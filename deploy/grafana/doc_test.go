// Package grafana contains the tests of the dashboards. The JSON files are the source.
package grafana
