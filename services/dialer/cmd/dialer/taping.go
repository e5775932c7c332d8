package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/dialer/internal/recordings"
	"ringfence.dev/services/dialer/internal/store"
)

// taping is what calls are recorded with. Nothing of it is there where the operator has named no storage; files only where it is a local directory.
type taping struct {
	recorder *recordings.Recorder
	files    *recordings.Directory
	links    *recordingstore.Links
}

// openTaping opens the storage and the spool.
func openTaping(cfg recordingsConfig, pool *pgxpool.Pool, st *store.Store, told func(), tel *telemetry.Telemetry) (t taping, err error) {
	where, err := cfg.Storage.Where()
	if err != nil || where == recordingstore.Nowhere {
		return t, err
	}
	spooled := cfg.Spool
	var storage recordings.Storage
	if where == recordingstore.S3 {
		if spooled == "" {
			spooled = filepath.Join(os.TempDir(), "ringfence-recordings")
		}
		storage, err = recordings.NewBucket(cfg.Storage)
	} else {
		if cfg.Directory == "" {
			return t, errors.New("RECORDINGS_DIR is empty: with RECORDINGS_LINK_KEYS it is the directory that recordings lie in")
		}
		if spooled == "" {
			spooled = filepath.Join(cfg.Directory, ".spool")
		}
		if t.links, err = recordingstore.NewLinks(cfg.Storage); err == nil {
			t.files, err = recordings.NewDirectory(cfg.Directory)
		}
		storage = t.files
	}
	if err != nil {
		return t, err
	}
	spool, err := recordings.OpenSpool(spooled)
	if err != nil {
		return t, err
	}
	t.recorder = recordings.New(spool, store.NewRecordings(pool, spool.Name()), st, storage, cfg.Keep, told, tel.Metrics)
	return t, nil
}

// run tapes until ctx ends.
func (t taping) run(ctx context.Context) error {
	if t.recorder == nil {
		<-ctx.Done()
		return nil
	}
	return t.recorder.Run(ctx)
}
