package store

import (
	"embed"
	"io/fs"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the numbered, forward-only steps of the schema, for pg.Open and pgtest.New.
var Migrations = subFolder(files, "migrations")

func subFolder(files fs.FS, name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic(err) // the name is a constant, so this error cannot occur
	}
	return sub
}
