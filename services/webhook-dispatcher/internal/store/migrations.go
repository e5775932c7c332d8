package store

import (
	"embed"
	"io/fs"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations contains the SQL migrations of the schema webhook_dispatcher.
var Migrations = subFolder(files, "migrations")

func subFolder(files fs.FS, name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic(err) // this cannot happen, because the name is a constant
	}
	return sub
}
