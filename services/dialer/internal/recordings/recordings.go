// Package recordings records calls into files in the spool directory, and uploads each file to the
// operator's storage after its call. It deletes a recording that is too old, or whose person was
// erased or objected to it. The caller decides whether a call may be recorded and when the
// recording starts.
//
// The database contains the state of each recording, so that another process with the same spool
// directory can finish the work of a dead process.
package recordings

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// flushInterval is the time between two writes of buffered audio. If the process dies, a recording
	// loses at most this much audio.
	flushInterval = 500 * time.Millisecond
	// roundInterval is the time between two searches for due uploads and deletions.
	roundInterval = time.Second
	// tidyInterval is the time between two calls of Tidy.
	tidyInterval = time.Minute
	// maxObjects is the maximum number of uploads, and of deletions, in one round. storageTimeout
	// limits one upload or deletion.
	maxObjects, storageTimeout = 8, 2 * time.Minute
	// stopTimeout limits the upload of the last files when the process stops.
	stopTimeout = 20 * time.Second
	// unreachableAfter is the time without a heartbeat of a spool after which its recordings count as
	// lost.
	unreachableAfter = time.Hour
	// expiryBatch is the maximum number of recordings that expire in one transaction.
	expiryBatch = 500
)

// Storage is the operator's storage of recordings.
type Storage interface {
	// Put uploads a file. It replaces an existing object.
	Put(ctx context.Context, key, file string) error
	// Delete deletes an object. It is not an error if the object does not exist.
	Delete(ctx context.Context, key string) error
}

// Recorder records calls. It is safe for concurrent use.
type Recorder struct {
	spool     *Spool
	rows      *store.Recordings
	calls     *store.Store
	storage   Storage
	keepTime  time.Duration
	wakeRelay func()
	woken     chan struct{}
	results   *prometheus.CounterVec

	mu    sync.Mutex
	tapes map[uuid.UUID]*Tape
}

// New returns a recorder that writes to the spool and uploads to the storage. keepTime is how long
// recordings are kept if their workspace has no setting. The recorder calls wakeRelay after it has
// written events. The caller must call Run.
func New(
	spool *Spool,
	rows *store.Recordings,
	calls *store.Store,
	storage Storage,
	keepTime time.Duration,
	wakeRelay func(),
	metrics prometheus.Registerer,
) *Recorder {
	r := &Recorder{
		spool: spool, rows: rows, calls: calls, storage: storage, keepTime: keepTime,
		wakeRelay: wakeRelay, woken: make(chan struct{}, 1), tapes: map[uuid.UUID]*Tape{},
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_dialer_recordings_total",
			Help: "Recordings by result: begun, stored, deleted, lost (the file is missing or cannot be reached), broken " +
				"(the disk was too slow; stored up to that point), delayed (an upload or delete failed).",
		}, []string{"result"}),
	}
	metrics.MustRegister(r.results)
	for _, result := range []string{"begun", "stored", "deleted", "lost", "broken", "delayed"} {
		r.results.WithLabelValues(result)
	}
	return r
}

// Begin starts the recording of a live call. It returns store.ErrRefused if the call must not be
// recorded. It creates and locks the file before it writes the database row, so that a process that
// finds the row also finds the file.
func (r *Recorder) Begin(ctx context.Context, workspaceID, callID uuid.UUID) (*Tape, error) {
	return r.begin(ctx, workspaceID, callID, r.rows.Begin)
}

// begin creates the file of a recording. addRow writes the database row.
func (r *Recorder) begin(
	ctx context.Context, workspaceID, callID uuid.UUID,
	addRow func(ctx context.Context, workspaceID, callID uuid.UUID, key string) error,
) (*Tape, error) {
	tape, err := r.spool.createTape(callID)
	if err != nil {
		return nil, fmt.Errorf("begin a recording: %w", err)
	}
	tape.onEnd = r.wake
	r.mu.Lock()
	r.tapes[callID] = tape
	r.mu.Unlock()
	if err := addRow(ctx, workspaceID, callID, recordingstore.Key(workspaceID, callID, time.Now())); err != nil {
		tape.Discard() // if the row exists despite the error, completeFiles closes it later
		return nil, err
	}
	r.results.WithLabelValues("begun").Inc()
	return tape, nil
}

func (r *Recorder) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// Run writes, uploads and deletes recordings until ctx ends. Then it uploads complete files for at
// most stopTimeout.
func (r *Recorder) Run(ctx context.Context) error {
	writing, stop := context.WithCancel(context.Background())
	var writer sync.WaitGroup
	writer.Go(func() { r.writeTapes(writing) })
	defer writer.Wait()
	defer stop()
	rounds, tidies := time.NewTicker(roundInterval), time.NewTicker(tidyInterval)
	defer rounds.Stop()
	defer tidies.Stop()
	r.report(ctx, errors.Join(r.Round(ctx), r.Tidy(ctx, time.Now())))
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			r.report(last, r.Round(last))
			return nil
		case <-rounds.C:
			r.report(ctx, r.Round(ctx))
		case <-r.woken:
			r.report(ctx, r.Round(ctx))
		case <-tidies.C:
			r.report(ctx, r.Tidy(ctx, time.Now()))
		}
	}
}

func (r *Recorder) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "upload or deletion of recordings failed", "error", err)
	}
}

func (r *Recorder) writeTapes(ctx context.Context) {
	ticker := time.NewTicker(flushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for id, tape := range r.openTapes() {
			if err := tape.writeBuffer(); err != nil {
				slog.WarnContext(ctx, "recording stopped before the call ended", "call_id", id, "error", err)
				r.results.WithLabelValues("broken").Inc()
			}
		}
	}
}

func (r *Recorder) openTapes() map[uuid.UUID]*Tape {
	r.mu.Lock()
	defer r.mu.Unlock()
	open := make(map[uuid.UUID]*Tape, len(r.tapes))
	for id, tape := range r.tapes {
		open[id] = tape
	}
	return open
}

// Round uploads complete files and deletes the recordings whose deletion is due.
func (r *Recorder) Round(ctx context.Context) error {
	err := errors.Join(r.rows.Heartbeat(ctx), r.completeFiles(ctx))
	if err != nil { // the database cannot be reached
		return err
	}
	uploads, err := r.rows.DueUploads(ctx, maxObjects)
	for _, due := range uploads {
		err = errors.Join(err, r.countFailure(r.upload(ctx, due)))
	}
	leavings, fault := r.rows.DueDeletions(ctx, maxObjects)
	err = errors.Join(err, fault)
	for _, due := range leavings {
		err = errors.Join(err, r.countFailure(r.deleteRecording(ctx, due)))
	}
	if len(uploads)+len(leavings) > 0 {
		r.wakeRelay()
	}
	if len(uploads) == maxObjects || len(leavings) == maxObjects {
		r.wake()
	}
	return err
}

func (r *Recorder) countFailure(err error) error {
	if err != nil {
		r.results.WithLabelValues("delayed").Inc()
	}
	return err
}

// completeFiles completes recordings that have ended or belong to dead processes. It repairs the
// headers of their files.
func (r *Recorder) completeFiles(ctx context.Context) error {
	unsettled, err := r.rows.Unfinished(ctx)
	for _, id := range unsettled {
		r.mu.Lock()
		tape := r.tapes[id]
		r.mu.Unlock()
		dropped := false
		if tape != nil {
			var ended bool
			if ended, dropped = tape.fileState(); !ended {
				continue
			}
		}
		err = errors.Join(err, r.closeRecording(ctx, id, dropped))
	}
	if err != nil {
		return err
	}
	for id, tape := range r.openTapes() {
		// The row of this tape is closed or was never written, so the tape is no longer needed.
		if ended, _ := tape.fileState(); ended {
			r.mu.Lock()
			delete(r.tapes, id)
			r.mu.Unlock()
		}
	}
	return nil
}

func (r *Recorder) closeRecording(ctx context.Context, id uuid.UUID, dropped bool) error {
	if dropped {
		return r.rows.Close(ctx, id, true)
	}
	sound, err := r.spool.repairFile(id)
	switch {
	case errors.Is(err, errBusy):
		return nil // another process with this spool is writing the file
	case errors.Is(err, os.ErrNotExist):
		lost, err := r.rows.MarkLost(ctx, id)
		if lost {
			r.markLost(ctx, id)
		}
		return err
	case err != nil:
		return err
	}
	return r.rows.Close(ctx, id, sound == 0)
}

func (r *Recorder) markLost(ctx context.Context, id uuid.UUID) {
	slog.ErrorContext(ctx, "recording lost: file missing or spool unreachable", "call_id", id)
	r.results.WithLabelValues("lost").Inc()
}

func (r *Recorder) upload(ctx context.Context, due store.Due) error {
	limited, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	file := r.spool.path(due.CallID)
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		lost, err := r.rows.MarkLost(ctx, due.CallID)
		if lost {
			r.markLost(ctx, due.CallID)
		}
		return err
	}
	if err := r.storage.Put(limited, due.Key, file); err != nil {
		return err
	}
	if err := r.publishEvent(ctx, due.CallID, due.Key); err != nil {
		return err
	}
	kept, err := r.rows.MarkStored(ctx, due.CallID)
	if err != nil || !kept {
		return err
	}
	r.results.WithLabelValues("stored").Inc()
	return removeFile(file)
}

// deleteRecording deletes a recording. Before that, it publishes an event that the recording is no
// longer available.
func (r *Recorder) deleteRecording(ctx context.Context, due store.Due) error {
	limited, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	if err := r.publishEvent(ctx, due.CallID, ""); err != nil {
		return err
	}
	if err := removeFile(r.spool.path(due.CallID)); err != nil {
		return err
	}
	if due.InStorage {
		if err := r.storage.Delete(limited, due.Key); err != nil {
			return err
		}
	}
	if err := r.rows.Delete(ctx, due.CallID); err != nil {
		return err
	}
	r.results.WithLabelValues("deleted").Inc()
	return nil
}

func removeFile(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the file of a recording: %w", err)
	}
	return nil
}

func (r *Recorder) publishEvent(ctx context.Context, callID uuid.UUID, key string) error {
	return r.calls.Record(ctx, callID, key, time.Now())
}

// Tidy marks recordings that are too old at the time now, so that they are deleted. It marks the
// recordings of unreachable spools as lost, and deletes files that belong to no recording.
func (r *Recorder) Tidy(ctx context.Context, now time.Time) error {
	var faults error
	for gone := int64(expiryBatch); gone == expiryBatch; {
		var err error
		gone, err = r.rows.Expire(ctx, now, r.keepTime, expiryBatch)
		faults = errors.Join(faults, err)
	}
	given, err := r.rows.MarkUnreachableLost(ctx, unreachableAfter)
	for _, id := range given {
		r.markLost(ctx, id)
	}
	return errors.Join(faults, err, r.deleteUnknownFiles(ctx))
}

// deleteUnknownFiles deletes files without a database row. Such a file remains if a process dies
// after it has created the file and before it has written the row.
func (r *Recorder) deleteUnknownFiles(ctx context.Context) error {
	found, err := r.spool.files()
	if err != nil || len(found) == 0 {
		return err
	}
	known, err := r.rows.Known(ctx, found)
	if err != nil {
		return err
	}
	needed := make(map[uuid.UUID]bool, len(known))
	for _, id := range known {
		needed[id] = true
	}
	for id := range r.openTapes() {
		needed[id] = true
	}
	for _, id := range found {
		if needed[id] {
			continue
		}
		if _, busy := r.spool.repairFile(id); errors.Is(busy, errBusy) {
			continue
		}
		err = errors.Join(err, removeFile(filepath.Clean(r.spool.path(id))))
	}
	return err
}
