// Package migrations holds the gateway's schema as numbered, forward-only steps.
package migrations

import "embed"

// FS is what pg.Open and pgtest.New run.
//
//go:embed *.sql
var FS embed.FS
