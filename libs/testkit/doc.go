// Package testkit contains helpers for the tests of all modules: fuzzing of HTTP surfaces, checks
// of lists, routes and timestamps, waits, free ports, and an S3 server in memory.
package testkit
