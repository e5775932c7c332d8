//go:build !crashpoints

// Package failpoint marks places in the code at which tests kill the process. The package has no
// effect unless the program is built with the tag crashpoints.
package failpoint

// Inject is a failpoint. With the build tag crashpoints it kills the process if the file CRASH_FILE
// contains name.
func Inject(string) {}
