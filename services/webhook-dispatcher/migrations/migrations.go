// Package migrations owns the schema webhook_dispatcher, forward only.
package migrations

import "embed"

// FS holds the numbered files.
//
//go:embed *.sql
var FS embed.FS
