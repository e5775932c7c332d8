// Package witnessing tells a log outside the database, once a minute, how long each chain of consent records is and what its last row
// is, signed: who can write everything in the database can still not make the newest rows undone. It judges nothing.

package consentlog

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// HeadLogConfig is the witnessing part of the environment.
type HeadLogConfig struct {
	// Path is opened anew for every writing, so that it may be moved away at any time.
	Path string `env:"CONSENT_HEAD_LOG" help:"file outside the database to which the signed heads of the consent records are appended every minute; replicas may share it; empty: none is written"`
}

const (
	headLogInterval = time.Minute
	// overlap is how long a transaction may be under way whose head is older than one that was seen.
	overlap = 5 * time.Minute
	// all is every how many writings each head is looked at: what says when it moved can be changed by who rules the database.
	all = 30
)

// HeadLog appends to one log under a name of its own.
type HeadLog struct {
	archive *store.Archive
	keys    *consentchain.Keys
	path    string
	writer  string
	line    int64
	round   int
	since   time.Time
	// told is what stands in the log of each chain.
	told map[uuid.UUID]int64

	shrunk prometheus.Counter
	faults prometheus.Counter
}

// NewHeadLog makes a witness.
func NewHeadLog(of *store.Archive, keys *consentchain.Keys, cfg HeadLogConfig, metrics prometheus.Registerer) *HeadLog {
	w := &HeadLog{
		archive: of, keys: keys, path: cfg.Path, writer: uuid.NewString(), told: map[uuid.UUID]int64{},
		shrunk: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_contacts_consent_chain_rollbacks_total", Help: "Times that a chain of consent records was shorter than it had been: somebody changed it in the database.",
		}),
		faults: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_contacts_consent_head_log_errors_total", Help: "Times that the heads of the consent records could not be written to the log outside the database.",
		}),
	}
	metrics.MustRegister(w.shrunk, w.faults)
	return w
}

// Run writes at once, every minute, and when ctx ends. Each replica may; a log that cannot be written is no reason to end.
func (w *HeadLog) Run(ctx context.Context) error {
	if w.path == "" {
		slog.WarnContext(ctx, "no log of the consent records' heads is kept: set CONSENT_HEAD_LOG, or nobody can tell when the newest rows are undone")
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(headLogInterval)
	defer tick.Stop()
	for {
		if err := w.Write(ctx); err != nil && ctx.Err() == nil {
			w.faults.Inc()
			slog.ErrorContext(ctx, "the heads of the consent records could not be written; trying again in a minute", "error", err)
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			_ = w.Write(last) // the next start writes every head anyway
			return nil
		case <-tick.C:
		}
	}
}

// Write appends a line for every chain that grew since the last call, and returns when they are on the disk.
func (w *HeadLog) Write(ctx context.Context) error {
	file, err := os.OpenFile(w.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open head log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if end, err := file.Seek(0, io.SeekEnd); err != nil || end == 0 {
		w.since, w.told = time.Time{}, map[uuid.UUID]int64{} // a log that begins knows every chain
	}
	since := time.Time{}
	if w.round++; w.round%all != 0 && !w.since.IsZero() {
		since = w.since.Add(-overlap)
	}
	latest, at, lines := w.since, time.Now().UTC().Truncate(time.Microsecond), []byte{}
	err = w.archive.MovedHeads(ctx, since, func(head store.Head) error {
		if head.MovedAt.After(latest) {
			latest = head.MovedAt
		}
		before := w.told[head.WorkspaceID]
		if before == head.Seq {
			return nil
		}
		if head.Seq < before {
			w.shrunk.Inc()
			slog.ErrorContext(ctx, "a chain of consent records is shorter than it was: somebody changed it in the database; run verify", "workspace_id", head.WorkspaceID, "rows", head.Seq, "before", before)
		}
		w.told[head.WorkspaceID] = head.Seq
		w.line++
		line := consentchain.Witness{At: at, Writer: w.writer, Line: w.line, WorkspaceID: head.WorkspaceID, Count: head.Seq, Hash: hex.EncodeToString(head.MAC)}
		line.Sign(w.keys)
		text, err := json.Marshal(line)
		lines = append(append(lines, text...), '\n')
		return err
	})
	if err == nil && len(lines) > 0 {
		err = appendWhole(file, lines)
	}
	if err != nil {
		// Whatever is on the disk, the lines come again from a writer with another name: a gap would look like a missing line.
		w.writer, w.line, w.since, w.told = uuid.NewString(), 0, time.Time{}, map[uuid.UUID]int64{}
		return err
	}
	if w.since = latest; at.Before(latest) {
		w.since = at
	}
	return nil
}

// appendWhole writes in one piece, behind an end of line if a crash left none.
func appendWhole(file *os.File, lines []byte) error {
	last := make([]byte, 1)
	if end, err := file.Seek(0, io.SeekEnd); err == nil && end > 0 {
		if _, err := file.ReadAt(last, end-1); err == nil && last[0] != '\n' {
			lines = append([]byte{'\n'}, lines...)
		}
	}
	_, err := file.Write(lines)
	if err = errors.Join(err, file.Sync()); err != nil {
		return fmt.Errorf("append to head log: %w", err)
	}
	return nil
}
