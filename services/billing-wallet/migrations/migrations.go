// Package migrations holds the tables of billing-wallet: numbered, forward only, embedded.
package migrations

import "embed"

// FS is the track named after the schema.
//
//go:embed *.sql
var FS embed.FS
