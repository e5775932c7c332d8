// Package recordings writes what is said in calls into files of this machine, and brings each, once its call is over, to where the operator keeps recordings; and it takes away what is
// too old, what an erasure names and what the person did not want. What is to be done stands in the database, so that a process that dies leaves nothing behind that the next one in its
// spool directory does not finish. Whether a call may be recorded, and from when on, is its caller's to know.
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
	// flush is how often what was heard goes into the files: so much of a call is lost with its process.
	flush = 500 * time.Millisecond
	// round is between two looks at what is to be done, and tidy between two at what is too old, out of reach, or nobody's.
	round, tidy = time.Second, time.Minute
	// atOnce bounds what one round takes on, and patience what one object may take.
	atOnce, patience = 8, 2 * time.Minute
	// parting is how long the last files may take to reach the storage when the process ends.
	parting = 20 * time.Second
	// unreachable is how long nobody may have worked in a spool before what it holds counts as lost.
	unreachable = time.Hour
	// batch of what expires at once.
	batch = 500
)

// Storage is where recordings are kept.
type Storage interface {
	// Put brings a file there; again, it takes its place.
	Put(ctx context.Context, key, file string) error
	// Delete takes an object away; one that is not there is no fault.
	Delete(ctx context.Context, key string) error
}

// Recorder records.
type Recorder struct {
	spool   *Spool
	rows    *store.Recordings
	calls   *store.Store
	storage Storage
	keep    time.Duration
	told    func()
	woken   chan struct{}
	results *prometheus.CounterVec

	mu    sync.Mutex
	tapes map[uuid.UUID]*Tape
}

// New records into the spool and from there into the storage, where recordings stay for as long as their workspace wants, or keep. told is called when facts were written. Run
// must run beside it.
func New(spool *Spool, rows *store.Recordings, calls *store.Store, storage Storage, keep time.Duration, told func(), metrics prometheus.Registerer) *Recorder {
	r := &Recorder{
		spool: spool, rows: rows, calls: calls, storage: storage, keep: keep, told: told, woken: make(chan struct{}, 1), tapes: map[uuid.UUID]*Tape{},
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_dialer_recordings_total", Help: "Recordings by what became of them: begun, stored, deleted, lost (their file is gone or out of reach), broken (the disk was too slow; kept up to there), delayed (a try to store or delete that failed).",
		}, []string{"result"}),
	}
	metrics.MustRegister(r.results)
	for _, result := range []string{"begun", "stored", "deleted", "lost", "broken", "delayed"} {
		r.results.WithLabelValues(result)
	}
	return r
}

// Begin makes the tape of a live call; recordings.ErrRefused when it is not to have one. The file is locked before the row tells of it, so that whoever finds the row finds a file.
func (r *Recorder) Begin(ctx context.Context, workspaceID, callID uuid.UUID) (*Tape, error) {
	tape, err := r.spool.tape(callID)
	if err != nil {
		return nil, fmt.Errorf("begin a recording: %w", err)
	}
	tape.over = r.wake
	r.mu.Lock()
	r.tapes[callID] = tape
	r.mu.Unlock()
	if err := r.rows.Begin(ctx, workspaceID, callID, recordingstore.Key(workspaceID, callID, time.Now())); err != nil {
		tape.Discard() // a row that was written all the same is found by settle
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

// Run works until ctx ends, and then sees the files that are whole to the storage, for a while.
func (r *Recorder) Run(ctx context.Context) error {
	writing, stop := context.WithCancel(context.Background())
	var writer sync.WaitGroup
	writer.Go(func() { r.write(writing) })
	defer writer.Wait()
	defer stop()
	rounds, tidies := time.NewTicker(round), time.NewTicker(tidy)
	defer rounds.Stop()
	defer tidies.Stop()
	r.report(ctx, errors.Join(r.Round(ctx), r.Tidy(ctx, time.Now())))
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), parting)
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
		slog.WarnContext(ctx, "recordings wait", "error", err)
	}
}

// write brings what was heard into the files.
func (r *Recorder) write(ctx context.Context) {
	ticker := time.NewTicker(flush)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for id, tape := range r.open() {
			if err := tape.flush(); err != nil {
				slog.WarnContext(ctx, "a recording ends before its call", "call_id", id, "error", err)
				r.results.WithLabelValues("broken").Inc()
			}
		}
	}
}

func (r *Recorder) open() map[uuid.UUID]*Tape {
	r.mu.Lock()
	defer r.mu.Unlock()
	open := make(map[uuid.UUID]*Tape, len(r.tapes))
	for id, tape := range r.tapes {
		open[id] = tape
	}
	return open
}

// Round does what is to be done now: files that are whole go into the storage, and what is to leave, leaves.
func (r *Recorder) Round(ctx context.Context) error {
	err := errors.Join(r.rows.Heartbeat(ctx), r.settle(ctx))
	if err != nil { // the database is away
		return err
	}
	uploads, err := r.rows.DueUploads(ctx, atOnce)
	for _, due := range uploads {
		err = errors.Join(err, r.try(r.upload(ctx, due)))
	}
	leavings, fault := r.rows.DueDeletions(ctx, atOnce)
	err = errors.Join(err, fault)
	for _, due := range leavings {
		err = errors.Join(err, r.try(r.remove(ctx, due)))
	}
	if len(uploads)+len(leavings) > 0 {
		r.told()
	}
	if len(uploads) == atOnce || len(leavings) == atOnce {
		r.wake()
	}
	return err
}

func (r *Recorder) try(err error) error {
	if err != nil {
		r.results.WithLabelValues("delayed").Inc()
	}
	return err
}

// settle looks at the files that nobody has said to be whole: those of tapes that are over, and those that a process left behind, whose headers are mended.
func (r *Recorder) settle(ctx context.Context) error {
	unsettled, err := r.rows.Unfinished(ctx)
	for _, id := range unsettled {
		r.mu.Lock()
		tape := r.tapes[id]
		r.mu.Unlock()
		dropped := false
		if tape != nil {
			var over bool
			if over, dropped = tape.state(); !over {
				continue
			}
		}
		err = errors.Join(err, r.close(ctx, id, dropped))
	}
	if err != nil {
		return err
	}
	for id, tape := range r.open() {
		if over, _ := tape.state(); over { // its row is closed, or was never written
			r.mu.Lock()
			delete(r.tapes, id)
			r.mu.Unlock()
		}
	}
	return nil
}

func (r *Recorder) close(ctx context.Context, id uuid.UUID, dropped bool) error {
	if dropped {
		return r.rows.Close(ctx, id, true)
	}
	sound, err := r.spool.mend(id)
	switch {
	case errors.Is(err, errBusy):
		return nil // another process in this spool writes it
	case errors.Is(err, os.ErrNotExist):
		lost, err := r.rows.MarkLost(ctx, id)
		if lost {
			r.lost(ctx, id)
		}
		return err
	case err != nil:
		return err
	}
	return r.rows.Close(ctx, id, sound == 0)
}

func (r *Recorder) lost(ctx context.Context, id uuid.UUID) {
	slog.ErrorContext(ctx, "a recording is lost: its file is not there", "call_id", id)
	r.results.WithLabelValues("lost").Inc()
}

// upload brings one file into the storage, tells where it lies, and takes the file away.
func (r *Recorder) upload(ctx context.Context, due store.Due) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	file := r.spool.path(due.CallID)
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		lost, err := r.rows.MarkLost(ctx, due.CallID)
		if lost {
			r.lost(ctx, due.CallID)
		}
		return err
	}
	if err := r.storage.Put(limited, due.Key, file); err != nil {
		return err
	}
	if err := r.tell(ctx, due.CallID, due.Key); err != nil {
		return err
	}
	kept, err := r.rows.MarkStored(ctx, due.CallID)
	if err != nil || !kept {
		return err
	}
	r.results.WithLabelValues("stored").Inc()
	return remove(file)
}

// remove takes away all that there is of a recording; that nobody can have it any more is told first.
func (r *Recorder) remove(ctx context.Context, due store.Due) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.tell(ctx, due.CallID, ""); err != nil {
		return err
	}
	if err := remove(r.spool.path(due.CallID)); err != nil {
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

func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the file of a recording: %w", err)
	}
	return nil
}

func (r *Recorder) tell(ctx context.Context, callID uuid.UUID, key string) error {
	return r.calls.Record(ctx, callID, key, time.Now())
}

// Tidy has recordings leave that are too old at the given time, gives up those whose spool is out of reach, and removes files that nobody needs.
func (r *Recorder) Tidy(ctx context.Context, now time.Time) error {
	var faults error
	for gone := int64(batch); gone == batch; {
		var err error
		gone, err = r.rows.Expire(ctx, now, r.keep, batch)
		faults = errors.Join(faults, err)
	}
	given, err := r.rows.MarkUnreachableLost(ctx, unreachable)
	for _, id := range given {
		r.lost(ctx, id)
	}
	return errors.Join(faults, err, r.sweep(ctx))
}

// sweep removes files of calls that no row tells of: a process died between the two.
func (r *Recorder) sweep(ctx context.Context) error {
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
	for id := range r.open() {
		needed[id] = true
	}
	for _, id := range found {
		if needed[id] {
			continue
		}
		if _, busy := r.spool.mend(id); errors.Is(busy, errBusy) {
			continue
		}
		err = errors.Join(err, remove(filepath.Clean(r.spool.path(id))))
	}
	return err
}
