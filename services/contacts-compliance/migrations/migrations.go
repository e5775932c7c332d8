// Package migrations owns the schema of contacts-compliance, one forward step a file.
package migrations

import "embed"

// FS holds the numbered SQL files.
//
//go:embed *.sql
var FS embed.FS
