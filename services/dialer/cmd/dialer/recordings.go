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

// recordingParts contains the parts that record calls. All fields are nil if no storage is
// configured. files and links are set only if the storage is a local directory.
type recordingParts struct {
	recorder *recordings.Recorder
	files    *recordings.Directory
	links    *recordingstore.Links
}

func openRecordings(
	cfg recordingsConfig,
	pool *pgxpool.Pool,
	st *store.Store,
	wakeRelay func(),
	tel *telemetry.Telemetry,
) (t recordingParts, err error) {
	where, err := cfg.Storage.Where()
	if err != nil || where == recordingstore.Nowhere {
		return t, err
	}
	spoolDir := cfg.Spool
	var storage recordings.Storage
	if where == recordingstore.S3 {
		if spoolDir == "" {
			spoolDir = filepath.Join(os.TempDir(), "ringfence-recordings")
		}
		storage, err = recordings.NewBucket(cfg.Storage)
	} else {
		if cfg.Directory == "" {
			return t, errors.New("RECORDINGS_DIR is empty: it is required with RECORDINGS_LINK_KEYS")
		}
		if spoolDir == "" {
			spoolDir = filepath.Join(cfg.Directory, ".spool")
		}
		if t.links, err = recordingstore.NewLinks(cfg.Storage); err == nil {
			t.files, err = recordings.NewDirectory(cfg.Directory)
		}
		storage = t.files
	}
	if err != nil {
		return t, err
	}
	spool, err := recordings.OpenSpool(spoolDir)
	if err != nil {
		return t, err
	}
	t.recorder = recordings.New(
		spool,
		store.NewRecordings(pool, spool.Name()),
		st,
		storage,
		cfg.Keep,
		wakeRelay,
		tel.Metrics,
	)
	return t, nil
}

func (t recordingParts) run(ctx context.Context) error {
	if t.recorder == nil {
		<-ctx.Done()
		return nil
	}
	return t.recorder.Run(ctx)
}

// simulate returns the job that records the calls of the simulated carrier.
func (t recordingParts) simulate(testOnly bool) func(context.Context) error {
	return func(ctx context.Context) error {
		if t.recorder == nil {
			<-ctx.Done()
			return nil
		}
		return recordings.NewSimulator(t.recorder, testOnly).Run(ctx)
	}
}
