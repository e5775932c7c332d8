//go:build !crashpoints

// Package failpoint marks places in the code at which tests kill the process. The package has no
// effect unless the program is built with the tag crashpoints.
package failpoint

// Inject is a failpoint. In a program that is built with the tag crashpoints, Inject kills the
// process if the file CRASH_FILE contains the name.
func Inject(string) {}
