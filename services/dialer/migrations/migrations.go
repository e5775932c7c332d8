// Package migrations holds the dialer's schema: numbered SQL files, forward only, embedded.
package migrations

import "embed"

// FS is the files.
//
//go:embed *.sql
var FS embed.FS
