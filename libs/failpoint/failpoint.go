//go:build !crashpoints

// Package failpoint marks the instants between two steps at which a process may die, so that a test can
// kill it exactly there. In an ordinary build a point costs nothing and does nothing.
package failpoint

// Inject marks one instant. Built with -tags crashpoints, the process kills itself here with SIGKILL when the
// file CRASH_FILE names the point.
func Inject(string) {}
