package store

import (
	"embed"
	"io/fs"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the numbered, forward-only migrations of the schema, for pg.Open and pgtest.New.
var Migrations = subFolder(files, "migrations")

func subFolder(files fs.FS, name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic(err) // cannot happen, because the name is a constant
	}
	return sub
}
