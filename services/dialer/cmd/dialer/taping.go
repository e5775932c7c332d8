package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	rules "ringfence.dev/libs/recording"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/dialer/internal/recording"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/store/recordings"
	"ringfence.dev/services/dialer/internal/storing"
)

// taping is what calls are recorded with. Nothing of it is there where the operator has named no storage; files only where it is a local directory.
type taping struct {
	recorder *recording.Recorder
	files    *storing.Directory
	links    *rules.Links
}

// openTaping opens the storage and the spool.
func openTaping(cfg recordingsConfig, pool *pgxpool.Pool, st *store.Store, told func(), tel *telemetry.Telemetry) (t taping, err error) {
	where, err := cfg.Storage.Where()
	if err != nil || where == rules.Nowhere {
		return t, err
	}
	spooled := cfg.Spool
	var storage recording.Storage
	if where == rules.S3 {
		if spooled == "" {
			spooled = filepath.Join(os.TempDir(), "ringfence-recordings")
		}
		storage, err = storing.NewBucket(cfg.Storage)
	} else {
		if cfg.Directory == "" {
			return t, errors.New("RECORDINGS_DIR is empty: with RECORDINGS_LINK_KEYS it is the directory that recordings lie in")
		}
		if spooled == "" {
			spooled = filepath.Join(cfg.Directory, ".spool")
		}
		if t.links, err = rules.NewLinks(cfg.Storage); err == nil {
			t.files, err = storing.NewDirectory(cfg.Directory)
		}
		storage = t.files
	}
	if err != nil {
		return t, err
	}
	spool, err := recording.OpenSpool(spooled)
	if err != nil {
		return t, err
	}
	t.recorder = recording.New(spool, recordings.New(pool, spool.Name()), st, storage, cfg.Keep, told, tel.Metrics)
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
