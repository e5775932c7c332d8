// Package migrations embeds the schema of calls, forward only.
package migrations

import "embed"

// FS holds the numbered SQL files.
//
//go:embed *.sql
var FS embed.FS
